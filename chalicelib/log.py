"""The one logger of the service: JSON lines, which never hold a token."""

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger


@cache
def logger() -> "Logger":
    """Made on first use: most requests log nothing, and the import is a seventh of a cold start."""
    from aws_lambda_powertools import Logger

    return Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "cascade"), serialize_stacktrace=False)
