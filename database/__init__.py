"""Every table is known as soon as this package is: whoever asks for `Base.metadata` gets all of it."""

from database import models as models
from database import workflow_models as workflow_models
