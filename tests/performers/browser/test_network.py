"""The browser reaches the hosts of the run, and nothing else, whatever a page does."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.kernel.events import Performed
from cuebook.kernel.outcomes import Failed
from tests.gate.sandbox.sandboxes import SANDBOXES
from tests.performers.browser import site as sites
from tests.performers.browser.harness import LOOPBACK, BrowserHarness
from tests.performers.browser.site import Site
from tests.support.http_servers import Authority

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.needs("bubblewrap"),
    pytest.mark.asyncio(loop_scope="session"),
]

HOSTILE = """<!doctype html><title>Hostile</title><head>
<link rel=preconnect href="{there}"><link rel=dns-prefetch href="{there}"><link rel=prefetch href="{there}/prefetch">
<link rel=prerender href="{there}/prerender"><link rel=stylesheet href="{there}/style"><link rel=icon href="{there}/icon">
<script type=speculationrules>{{"prerender": [{{"urls": ["{there}/speculated"]}}]}}</script>
</head><body><h1>Hostile</h1>
<img src="{there}/img"><iframe src="{there}/frame"></iframe><video src="{there}/video" autoplay></video>
<object data="{there}/object"></object><script src="{there}/script"></script>
<a id=away href="{there}/away">away</a> <a id=ping href="#here" ping="{there}/ping">ping</a>
<form action="{there}/form" method=post target=hidden><button id=send>send</button></form><iframe name=hidden></iframe>
<script>
const tried = [];
const attempt = work => {{ try {{ Promise.resolve(work()).catch(() => 0); }} catch (error) {{}} }};
attempt(() => fetch("{there}/fetch", {{mode: "no-cors"}}));
attempt(() => navigator.sendBeacon("{there}/beacon", "x"));
attempt(() => new WebSocket("{there}/socket".replace("http", "ws")));
attempt(() => new EventSource("{there}/events"));
attempt(() => new Worker(URL.createObjectURL(new Blob(["fetch('{there}/worker', {{mode: 'no-cors'}})"]))));
attempt(() => navigator.serviceWorker.register("/worker.js"));
attempt(() => window.open("{there}/popup"));
attempt(() => {{ const peer = new RTCPeerConnection({{iceServers: [{{urls: "stun:127.0.0.1:{port}"}}]}});
  peer.createDataChannel("x"); return peer.createOffer().then(one => peer.setLocalDescription(one)); }});
attempt(() => new WebTransport("https://127.0.0.1:{port}/transport"));
</script></body>"""


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_nothing_on_a_page_reaches_another_host(
    harness: BrowserHarness, site: Site, elsewhere: Site, sandbox: str
) -> None:
    harness.confine(sandbox)
    site.pages["/hostile"] = HOSTILE.format(there=elsewhere.url("").rstrip("/"), port=elsewhere.port)
    site.pages["/worker.js"] = "self.addEventListener('fetch', () => {})"
    row = await harness.browse(
        f"web navigate {site.url('/hostile')}", "web click '#ping'", "web click '#send'", "web wait h1", "web snapshot"
    )
    assert row.status == "completed", row.error
    assert elsewhere.hits == []
    assert f"127.0.0.1:{elsewhere.port}" in (await harness.warnings(row.id))["host_refused"]
    assert "GET /worker.js" not in site.hits


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_a_certificate_is_checked_and_the_step_says_what_is_wrong_with_it(tmp_path: Path, sandbox: str) -> None:
    authority = Authority(tmp_path)
    policy = {**LOOPBACK, "egress": {"allow": ["https://localhost:*/*", "https://127.0.0.1:*/*"]}}
    environ = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    (tmp_path / "run").mkdir()
    with sites.site(authority.serving("localhost")) as site:
        good, misnamed = site.url("/orders", host="localhost"), site.url("/orders")
        harness = BrowserHarness(tmp_path / "run", policy, environ)
        harness.confine(sandbox)
        both = f'allowed_domains: ["localhost:{site.port}", "127.0.0.1:{site.port}"]\n'
        untrusted = row = await harness.browse(
            f"web navigate {good}", "web extract '#orders b'", f"web navigate {misnamed}", head=both
        )
        if sandbox == "bubblewrap":
            assert (await harness.outputs(row.id))["s1"] == "1"
            assert f"{misnamed} could not be opened: its certificate is for another name" in str(row.error)
            await harness.close()
            site.hits.clear()
            harness = BrowserHarness(tmp_path / "run", policy)
            untrusted = await harness.browse(f"web navigate {good}")
        assert untrusted.error is not None
        assert untrusted.error.code == "tls", untrusted.error
        assert f"{good} could not be opened: the authority of its certificate is not trusted" in str(untrusted.error)
        assert "SSL_CERT_FILE" in untrusted.error.fix
        assert site.hits == []
        await harness.close()


async def test_redirects_links_and_refreshes_end_the_step(harness: BrowserHarness, site: Site, elsewhere: Site) -> None:
    site.redirects["/go"] = elsewhere.url("/target")
    site.pages["/link"] = f"<a href='{elsewhere.url('/target')}'>go</a>"
    site.pages["/refresh"] = f"<meta http-equiv=refresh content='0;url={elsewhere.url('/target')}'>"
    row = await harness.browse(
        f"id: redirect\n    command: web navigate {site.url('/go')}\n    on_error: continue",
        f"web navigate {site.url('/link')}",
        "id: link\n    command: web click a\n    on_error: continue",
        f"id: refresh\n    command: web navigate {site.url('/refresh')}",
    )
    assert (row.status, elsewhere.hits) == ("failed", [])
    found = [one.outcome for one in await harness.events(row.id, Performed) if isinstance(one.outcome, Failed)]
    assert [one.code for one in found] == ["host_refused"] * 3
    assert all(f"127.0.0.1:{elsewhere.port}" in one.message for one in found)
    row = await harness.browse(
        f"web navigate {site.url('/link')}", "web click a", head=f'allowed_domains: ["127.0.0.1:{elsewhere.port}"]\n'
    )
    assert elsewhere.hits[0] == "GET /target"


async def test_the_rules_decide_before_anything_is_reached(harness: BrowserHarness, site: Site, tmp_path: Path) -> None:
    harness.allow({"egress": {"allow": ["http://127.0.0.1:1/*"]}})
    row = await harness.browse(f"web navigate {site.url()}")
    assert (row.error and row.error.code) == "refused_address"  # loopback, unless a rule names it
    harness.allow({"egress": {"deny": ["127.0.0.1"]}})
    row = await harness.browse("web navigate https://example.com/", head="allowed_domains: [a.example]\n")
    wait = await harness.wait(row.id)
    assert wait.details["preview"]["network"] == "only a.example, example.com"
    harness.allow({"egress": {"deny": ["a.example"]}})
    row = await harness.decide(row.id, "approve")
    assert (row.error and row.error.code) == "forbidden"
    for url in ("file:///etc/passwd", "chrome://version", "ftp://example.com/", "javascript:alert(1)"):
        harness.allow({"egress": {"allow": ["*"]}})
        with pytest.raises(Exception, match=r"not a URL|begins with"):
            await harness.browse(f"web navigate {url}")
    assert site.hits == []


async def test_pages_cannot_open_local_files_or_settings(harness: BrowserHarness, site: Site) -> None:
    site.pages["/local"] = (
        "<a id=file href='file:///etc/passwd'>f</a><a id=chrome href='chrome://version'>c</a><h1>Local</h1>"
        "<iframe src='file:///etc/passwd'></iframe>"
    )
    row = await harness.browse(
        f"web navigate {site.url('/local')}",
        "web click '#file'",
        "web click '#chrome'",
        "web extract h1",
        "web snapshot",
    )
    assert row.status == "completed", row.error
    assert all("root:" not in f"{page.text}{page.html}" for page in await harness.pages(row.id))
