"""An AWS on this machine to deploy to: ministack, with what a deployment of Cascade needs and ministack lacks.

    python -m infra.local_aws --port 4566
    AWS_ENDPOINT_URL=http://127.0.0.1:4566 make deploy STAGE=dev

It listens on 127.0.0.1 only, keeps everything in memory and checks neither signatures nor rights. The gaps filled here are
ministack 1.5.33's: a REST API can't be made or replaced from a Swagger document through the API, a document's binary
types and gateway responses are left out, alarms on expressions are refused, and events of new objects name no version.
"""

import argparse
import json
import os
import socket
import tempfile
from contextvars import ContextVar
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_PREFIX = "x-amazon-apigateway-"


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _fill_gateway() -> None:
    from ministack.services import apigateway_v1 as gateway

    import_api, handle, patch = gateway._import_rest_api, gateway.handle_request, gateway._apply_patch

    def take_extensions(api_id: str, document: dict[str, Any]) -> None:
        gateway._rest_apis[api_id]["binaryMediaTypes"] = document.get(_PREFIX + "binary-media-types", [])
        gateway._gateway_responses[api_id] = {}
        for kind, wanted in document.get(_PREFIX + "gateway-responses", {}).items():
            gateway._put_gateway_response(api_id, kind, wanted)

    def import_whole(document: dict[str, Any], base: dict[str, Any] | None = None) -> str:
        api_id: str = import_api(document, base)
        take_extensions(api_id, document)
        return api_id

    def replace(api_id: str, document: dict[str, Any]) -> None:
        resources = gateway._resources[api_id]
        for resource_id in [key for key, resource in resources.items() if resource["path"] != "/"]:
            del resources[resource_id]
        for root in resources.values():
            root["resourceMethods"] = {}
        for path, item in document["paths"].items():
            gateway._import_path_item(api_id, path, item)
        take_extensions(api_id, document)

    def patch_numbers(target: dict[str, Any], operations: list[dict[str, Any]]) -> Any:
        whole = [
            {**one, "value": int(one["value"]) if one.get("value") else None}
            if one.get("path") == "/minimumCompressionSize"
            else one
            for one in operations
        ]
        return patch(target, whole)

    async def answer(method: str, path: str, headers: Any, body: bytes, query: dict[str, Any]) -> Any:
        parts = path.strip("/").split("/")
        if parts == ["restapis"] and method == "POST" and "mode" in query:
            kind = query.get("endpointConfigurationTypes")
            types = kind if isinstance(kind, list) else [kind] if kind else ["EDGE"]
            api_id = import_whole(json.loads(body), {"endpointConfiguration": {"types": types}})
            return gateway._v1_response(gateway._rest_api_view(gateway._rest_apis[api_id]), 201)
        if parts[0] == "restapis" and len(parts) == 2 and method == "PUT" and parts[1] in gateway._rest_apis:
            replace(parts[1], json.loads(body))
            return gateway._v1_response(gateway._rest_api_view(gateway._rest_apis[parts[1]]), 200)
        return await handle(method, path, headers, body, query)

    gateway._import_rest_api, gateway.handle_request, gateway._apply_patch = import_whole, answer, patch_numbers


def _fill_alarms() -> None:
    from ministack.services.cloudformation import provisioners

    record = provisioners._cw_metric_alarm_record

    def with_expressions(name: str, properties: dict[str, Any]) -> Any:
        metrics = properties.get("Metrics")
        if metrics:
            # Nothing evaluates it here: any of its metrics stands for the expression.
            stat = next(entry["MetricStat"] for entry in metrics if "MetricStat" in entry)
            properties = {
                **{key: value for key, value in properties.items() if key != "Metrics"},
                **stat["Metric"],
                "Period": stat["Period"],
                "Statistic": stat["Stat"],
            }
        return record(name, properties)

    provisioners._cw_metric_alarm_record = with_expressions


def _fill_events() -> None:
    from ministack.services import eventbridge, s3

    fire, dispatch = s3._fire_s3_event, eventbridge._dispatch_event
    version: ContextVar[str | None] = ContextVar("version", default=None)

    def fire_with_version(*arguments: Any, **named: Any) -> None:
        token = version.set(named.get("version_id"))
        try:
            fire(*arguments, **named)
        finally:
            version.reset(token)

    def dispatch_with_version(event: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        if event["Source"] == "aws.s3" and version.get():
            detail = json.loads(event["Detail"])
            detail["object"]["version-id"] = version.get()
            event = {**event, "Detail": json.dumps(detail)}
        return dispatch(event, *arguments, **named)

    s3._fire_s3_event, eventbridge._dispatch_event = fire_with_version, dispatch_with_version


def _start_functions_at_once() -> None:
    from ministack.services import lambda_svc

    # The SDK asks whether a function is ready every five seconds, and it is after half of one.
    lambda_svc._LAMBDA_STATE_TRANSITION_DELAY = 0.0


def run(port: int) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT."""
    with tempfile.TemporaryDirectory(prefix="cascade-local-aws-") as folder:
        os.environ |= {
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": HOST,
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "S3_DATA_DIR": str(Path(folder) / "s3"),
            "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
        }
        os.environ.setdefault("LOG_LEVEL", "WARNING")
        from ministack import app

        _fill_gateway()
        _fill_alarms()
        _fill_events()
        _start_functions_at_once()
        app.main()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="An AWS in the memory of this machine, to try a deployment on.")
    parser.add_argument("--port", type=int, default=4566, help="port on 127.0.0.1; 0 takes any free one")
    port = parser.parse_args().port or free_port()
    import sys

    sys.argv = sys.argv[:1]  # ministack reads them too
    print(f"AWS_ENDPOINT_URL=http://{HOST}:{port}", flush=True)
    run(port)


if __name__ == "__main__":
    main()
