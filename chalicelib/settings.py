"""Settings, read from the environment when asked, so that a test or the local server can set them late."""

import os

MIB = 1024 * 1024

FILE_MAX_BYTES = 64 * MIB
"""Largest file, inclusive."""
SIM_FILES_MAX_BYTES = 256 * MIB
"""Most bytes of files a sim may hold, inclusive."""
JSON_MAX_BYTES = 32 * MIB
"""Largest JSON body after decompression, inclusive: 25 MB of log lines with room to spare. As lines it takes 200 MB while it is
parsed; as nothing but brackets 850 MB, more than the function has, which then dies and harms nobody else."""
ERROR_MAX_BYTES = 4096
"""A heartbeat's error is cut to this many bytes of UTF-8."""
RUN_CREATE_MAX_SIMS = 1000
"""Most sims in one request, inclusive."""
RUN_MAX_SIMS = 10_000
"""Most sims in a run, inclusive: its detail stays under 5 MB."""
PARAMS_MAX_BYTES = 16 * 1024
"""Largest `params` of one sim as JSON, inclusive; 1,000 of them fit a 32 MiB body."""
PARAMS_MAX_DEPTH = 200
"""Most lists and objects within each other in the value of a parameter, inclusive: pydantic writes no more than 255."""
NAME_MAX_CHARS = 200
"""Longest name of a run, a sim or a worker, inclusive."""
RESPONSE_MAX_BYTES = 5_000_000
"""Largest inline answer: Lambda allows 6 MB with the envelope, and JSON in JSON grows by its escapes."""


def table_name() -> str:
    """DynamoDB table, `CASCADE_TABLE`."""
    return os.environ.get("CASCADE_TABLE", "cascade")


def bucket_name() -> str:
    """S3 bucket, `CASCADE_BUCKET`."""
    return os.environ.get("CASCADE_BUCKET", "cascade")


def region() -> str | None:
    """Where table and bucket are: where the code runs, but for code that CloudFront runs elsewhere (`CASCADE_REGION`)."""
    names = ("CASCADE_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def heartbeat_timeout_us() -> int:
    """Silence after which a running sim counts as lost, `CASCADE_HEARTBEAT_TIMEOUT_S` (60 s), in microseconds."""
    return int(float(os.environ.get("CASCADE_HEARTBEAT_TIMEOUT_S", "60")) * 1_000_000)


def direct_downloads() -> bool:
    """Whether the server in front of the app delivers any number of bytes itself, as the local one does.

    API Gateway does not: there large and binary answers are redirects to short-lived object-store URLs.
    """
    return os.environ.get("CASCADE_DIRECT_DOWNLOADS", "") == "1"
