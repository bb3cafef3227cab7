"""One replica at work: timer -> dispatcher -> claims -> pool -> finisher, beside them heart, rescuer and gap scan.

services/enhanced_scheduler.py builds the parts; start reading at dispatcher.py.
"""
