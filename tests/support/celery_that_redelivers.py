"""The app of the fleet's workers on Redis as Celery uses it by itself: what is not acknowledged is delivered again.

After the visibility timeout (an hour), or when a test says that it is over.
"""

from services.fleet.app import app

app.conf.broker_transport_options = {"ack_emulation": True}
