"""Notifications: channels, the deliveries that wait for them, and the loop that sends these from any replica.

Start reading at sender.py. What is told, and when, are the rules; how one message reaches one channel is channels/.
"""
