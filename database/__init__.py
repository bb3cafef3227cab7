"""Importing this package registers every table, so `Base.metadata` is always complete."""

from database import models as models
from database import workflow_models as workflow_models
