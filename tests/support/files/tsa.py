"""A time-stamping authority on this host: openssl signs, and an HTTP server of Python responds."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

_CONF = """
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[root]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[stamper]
extendedKeyUsage = critical, timeStamping
keyUsage = critical, digitalSignature
[tsa]
default_tsa = own
[own]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
"""


def openssl(*words: object, content: bytes | None = None) -> bytes:
    command = ["openssl", *map(str, words)]
    return subprocess.run(command, input=content, capture_output=True, check=True).stdout


class Authority:
    """An authority. Its root certificate is `root`."""

    def __init__(self, folder: Path, name: str = "Tests") -> None:
        folder.mkdir()
        self._folder, self.root, self._conf = folder, folder / "root.pem", folder / "tsa.conf"
        self._conf.write_text(_CONF.format(folder=folder, name=name))
        (folder / "serial").write_text("01\n")
        key = ("-newkey", "rsa:2048", "-nodes", "-config", self._conf, "-subj", f"/CN={name}")
        openssl("req", "-x509", *key, "-keyout", folder / "root.key", "-extensions", "root", "-out", self.root)
        openssl("req", "-new", *key, "-keyout", folder / "tsa.key", "-out", folder / "tsa.csr")
        signed_by = ("-CA", self.root, "-CAkey", folder / "root.key", "-set_serial", "2")
        extensions = ("-extfile", self._conf, "-extensions", "stamper")
        openssl("x509", "-req", "-in", folder / "tsa.csr", *signed_by, *extensions, "-out", folder / "tsa.pem")

    def stamp(self, query: bytes) -> bytes:
        """Return the response to a query."""
        path = self._folder / "query"
        path.write_bytes(query)
        return openssl("ts", "-reply", "-config", self._conf, "-section", "own", "-queryfile", path)


@contextmanager
def serve_authority(response: bytes | Authority, status: int = 200) -> Iterator[str]:
    """Serve an authority, or always the same response. Yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/timestamp-query"
            content = response.stamp(query) if isinstance(response, Authority) else response
            self.send_response(status)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
