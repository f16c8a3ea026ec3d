"""The `chalice` command, whose REST API also answers what API Gateway else answers in shapes of its own.

Chalice writes a Swagger document of the app's routes. Two things are added to every such document, for `deploy` and for
`package`, so that they change together with the routes: a catch-all that hands unknown paths to the app, and gateway
responses that give API Gateway's own errors the shape `{"detail": ...}`. And the package gets byte code beside each module.

    python -m infra.chalice_cli --project-dir build/deploy/dev deploy --stage dev
"""

import json
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chalice.cli import main as chalice_main
from chalice.deploy.packager import BaseLambdaDeploymentPackager as Packager
from chalice.deploy.swagger import SwaggerGenerator

from infra import stage

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
CATCH_ALL = ("/", "/{proxy+}")
"""API Gateway matches `{proxy+}` last, and never the root."""

TOO_LARGE = (
    "the request is over the limit of this deployment: 10 MB at API Gateway, 6 MB at Lambda (4.5 MB of binary); send a "
    "file by POST /api/sims/{sim_id}/uploads, or a part of the body at a time"
)

_MESSAGE = "$context.error.messageString"


def _response(detail: str, status: int | None = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """A gateway response; `detail` is JSON text or one of API Gateway's variables."""
    made: dict[str, Any] = {"responseTemplates": {"application/json": f'{{"detail": {detail}}}'}}
    if status:
        made["statusCode"] = str(status)
    if headers:
        made["responseParameters"] = {f"gatewayresponse.header.{name}": f"'{value}'" for name, value in headers.items()}
    return made


AGAIN = {"Retry-After": "1"}

GATEWAY_RESPONSES: dict[str, dict[str, Any]] = {
    # A kind that is not listed takes its own status and the template of its family.
    "DEFAULT_4XX": _response(_MESSAGE),
    "DEFAULT_5XX": _response(json.dumps("the service did not answer, send the same request again"), None, AGAIN),
    "MISSING_AUTHENTICATION_TOKEN": _response(json.dumps("not found"), 404),
    "REQUEST_TOO_LARGE": _response(json.dumps(TOO_LARGE)),
    "THROTTLED": _response(json.dumps("too many requests, send the same request again"), None, AGAIN),
    "QUOTA_EXCEEDED": _response(json.dumps("too many requests, send the same request again"), None, AGAIN),
}


def complete(document: dict[str, Any], integration_uri: Any) -> dict[str, Any]:
    """The Swagger document with the catch-all and the gateway responses; changed in place."""
    integration = {
        "type": "aws_proxy",
        "httpMethod": "POST",
        "uri": integration_uri,
        "passthroughBehavior": "when_no_match",
        "contentHandling": "CONVERT_TO_TEXT",
        "responses": {"default": {"statusCode": "200"}},
    }
    for path in CATCH_ALL:
        item = document["paths"].setdefault(path, {})
        for method in METHODS:
            operation: dict[str, Any] = {
                "consumes": [],
                "produces": ["application/json"],
                "responses": {"200": {"description": "200 response", "schema": {"$ref": "#/definitions/Empty"}}},
                "x-amazon-apigateway-integration": integration,
            }
            if "{" in path:
                operation["parameters"] = [{"name": "proxy", "in": "path", "required": True, "type": "string"}]
            item.setdefault(method, operation)
    document["x-amazon-apigateway-gateway-responses"] = GATEWAY_RESPONSES
    return document


def _generate(generate: Any, self: SwaggerGenerator, app: Any, rest_api: Any = None) -> dict[str, Any]:
    return complete(generate(self, app, rest_api), self._uri())


def _compiled(project: Path, source: str, name: str) -> tuple[str, str]:
    """Byte code of a module that chalice packs on its own: where it is, and its name in the package."""
    made = project / ".chalice" / "compiled" / name
    path = made.parent / "__pycache__" / f"{made.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(
        source,
        cfile=str(path),
        dfile=f"/var/task/{name}",
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return str(path), str(path.relative_to(project / ".chalice" / "compiled"))


def _pack_byte_code() -> None:
    files, build = Packager._iter_app_filenames, Packager._build_python_dependencies

    def with_compiled(self: Any, project_dir: str) -> Iterator[tuple[str, str]]:
        for source, name in files(self, project_dir):
            yield source, name
            if name.endswith(".py") and not name.startswith("chalicelib/"):  # whose byte code is in its folder
                yield _compiled(Path(project_dir), source, name)

    def then_compile(self: Any, version: str, requirements: str, site_packages_dir: str) -> None:
        build(self, version, requirements, site_packages_dir)
        stage.compile_modules(Path(site_packages_dir), Path(site_packages_dir))

    setattr(Packager, "_iter_app_filenames", with_compiled)  # noqa: B010
    setattr(Packager, "_build_python_dependencies", then_compile)  # noqa: B010


def main() -> int:
    """Run chalice's command line."""
    generate = SwaggerGenerator.generate_swagger
    setattr(SwaggerGenerator, "generate_swagger", lambda *args: _generate(generate, *args))  # noqa: B010
    _pack_byte_code()
    code: int = chalice_main()
    return code


if __name__ == "__main__":
    sys.exit(main())
