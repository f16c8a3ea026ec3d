"""What can go wrong, as the domain says it; `http` turns each into an answer."""


class CascadeError(Exception):
    """A refusal with an HTTP status and a `detail` for the caller."""

    status = 500

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFound(CascadeError):
    """Nothing has this id."""

    status = 404


class Conflict(CascadeError):
    """The state of things does not allow it."""

    status = 409


class TooLarge(CascadeError):
    """Over a size limit."""

    status = 413


class Unprocessable(CascadeError):
    """The request itself is wrong, in a way a model cannot say."""

    status = 422


class Busy(CascadeError):
    """Throttled or a passing fault below: the same call may be sent again after `retry_after` seconds."""

    status = 503

    def __init__(
        self, detail: str = "temporarily overloaded, send the same request again", retry_after: int = 1
    ) -> None:
        super().__init__(detail)
        self.retry_after = retry_after
