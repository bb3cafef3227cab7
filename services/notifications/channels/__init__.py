"""How one message reaches one channel: a file for each kind, with the schema of its configuration and `send`.

kinds.py lists them. A configuration refers to secrets as `${env:NAME}`; they are filled in when a message is sent.
"""
