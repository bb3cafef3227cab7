"""The dead-man's switch: a ping to another system as long as all is well; its silence is the alarm."""
