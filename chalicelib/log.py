"""The one logger of the service: JSON lines, which never hold a token."""

import os

from aws_lambda_powertools import Logger

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "cascade"), serialize_stacktrace=False)
