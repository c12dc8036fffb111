"""A collector on loopback: an HTTP server that decodes what is sent over OTLP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@dataclass
class Seen:
    """A span as it arrived."""

    span: Span
    resource: dict[str, Any]

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def id(self) -> str:
        return self.span.span_id.hex()

    @property
    def trace(self) -> str:
        return self.span.trace_id.hex()

    @property
    def parent(self) -> str:
        return self.span.parent_span_id.hex()

    @property
    def attributes(self) -> dict[str, Any]:
        return {one.key: plain(one.value) for one in self.span.attributes}

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(one.name, {a.key: plain(a.value) for a in one.attributes}) for one in self.span.events]

    @property
    def seconds(self) -> float:
        return (self.span.end_time_unix_nano - self.span.start_time_unix_nano) / 1e9

    @property
    def failed(self) -> bool:
        return self.span.status.code == Status.STATUS_CODE_ERROR


@dataclass
class Receiver:
    spans: list[Seen] = field(default_factory=list)
    metrics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The attributes of all data points, by the name of the metric."""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""
    news: threading.Condition = field(default_factory=threading.Condition)

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Seen:
        (found,) = self.named(name)
        return found

    def until(self, name: str, count: int = 1) -> list[Seen]:
        """The spans of this name, once there are so many."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.named(name)) >= count, 60), [one.name for one in self.spans]
        return self.named(name)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for spans in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = {one.key: plain(one.value) for one in spans.resource.attributes}
                self.spans += [Seen(span, resource) for scope in spans.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            request = ExportMetricsServiceRequest.FromString(body)
            for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
                data = getattr(metric, metric.WhichOneof("data") or "")
                points = [{one.key: plain(one.value) for one in point.attributes} for point in data.data_points]
                self.metrics.setdefault(metric.name, []).extend(points)


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with receiver.news:
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.bodies.append(body)
                receiver.take(self.path, body)
                receiver.news.notify_all()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *parts: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
