"""Notifications: channels, the deliveries that wait for them, and the loop that sends these from any replica.

Start reading at notifier.py (rules.py says which events are reported) and sender.py; channels/ sends one message.
"""
