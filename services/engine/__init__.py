"""The engine of one replica: timer -> dispatcher -> claims -> pool -> finisher, with heart, rescuer and gap scan.

services/enhanced_scheduler.py builds the parts; start reading at dispatcher.py.
"""
