"""What is read: files, an nginx that serves them, and a far link to it."""

import io
import os
import signal
import socket
import subprocess
import tarfile

from .measure import MIB, BenchError, remove

LINK = {"rtt_ms": 40, "bytes_per_s": 50_000_000}

NGINX = """
{user}worker_processes 2; pid nginx.pid; error_log {dir}/error.log; daemon on;
events {{ worker_connections 4096; }}
http {{
default_type application/octet-stream;
log_format bytes '$request_method $body_bytes_sent $uri';
access_log off;
client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f; uwsgi_temp_path tmp/u;
scgi_temp_path tmp/s;
sendfile on; tcp_nodelay on; keepalive_requests 1000000;
server {{
  listen 127.0.0.1:{port} backlog=1024; listen 127.0.0.1:{tls} ssl; server_name localhost;
  ssl_certificate s.crt; ssl_certificate_key s.key;
  root {www}; autoindex on; autoindex_format json;
  location /logged/ {{ alias {www}/; access_log access.log bytes; }}
  location /html/ {{ alias {www}/; autoindex_format html; }}
}} }}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class World:
    """A folder of its own with www/ (shard-NNNNNN.tar) and www/many/ (for many sparse files), served on
    loopback."""

    def __init__(self, folder, shard_nbytes, nshards, farlink):
        self.dir, self.www = folder, os.path.join(folder, "www")
        self.shard_nbytes, self.farlink, self.link_process, self.nginx = shard_nbytes, farlink, None, False
        self.names = [f"shard-{number:06d}.tar" for number in range(nshards)]

    def open(self):
        os.makedirs(os.path.join(self.www, "many"))
        seed = os.urandom(16 * MIB)
        for number, name in enumerate(self.names):
            with open(os.path.join(self.www, name), "wb") as f:
                for at in range(0, self.shard_nbytes, 16 * MIB):
                    mark = number.to_bytes(8, "little") + at.to_bytes(8, "little")
                    f.write((mark + seed[16:])[: self.shard_nbytes - at])
        self.start_nginx()

    def make_samples(self, nbytes=110_000):
        """Two shards of samples, of a shard's size each; returns their names."""
        names, seed = [f"samples-{number}.tar" for number in range(2)], os.urandom(MIB)
        for name in names:
            with tarfile.open(os.path.join(self.www, name), "w", format=tarfile.USTAR_FORMAT) as tar:
                for number in range(self.shard_nbytes // nbytes):
                    member = tarfile.TarInfo(f"{number:06d}.bin")
                    member.size = nbytes
                    at = number % (MIB - nbytes)
                    tar.addfile(member, io.BytesIO(seed[at : at + nbytes]))
        return names

    def start_nginx(self):
        folder = os.path.join(self.dir, "nginx")
        os.makedirs(os.path.join(folder, "tmp"))
        with open(os.path.join(folder, "openssl.log"), "w") as log:
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-keyout", "s.key", "-out", "s.crt", "-days", "2", "-subj", "/CN=localhost", "-addext",
                 "subjectAltName=DNS:localhost,IP:127.0.0.1"], cwd=folder, check=True, stdout=log, stderr=log)
        port, tls = free_port(), free_port()
        user = "user root;\n" if os.geteuid() == 0 else ""
        with open(os.path.join(folder, "nginx.conf"), "w") as f:
            f.write(NGINX.format(dir=folder, www=self.www, port=port, tls=tls, user=user))
        env = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")
        subprocess.run(["nginx", "-p", folder + "/", "-c", f"{folder}/nginx.conf"], check=True, env=env)
        self.nginx = True
        self.port, self.ca = port, os.path.join(folder, "s.crt")
        self.near, self.tls = f"http://127.0.0.1:{port}", f"https://localhost:{tls}"

    def far(self):
        """The same nginx over a link with latency; started when first asked for."""
        if not self.link_process:
            self.link_process = subprocess.Popen(
                [self.farlink, "--rtt-ms", str(LINK["rtt_ms"]), "--rate", str(LINK["bytes_per_s"]), "127.0.0.1",
                 str(self.port)], stdout=subprocess.PIPE, text=True)
            port = self.link_process.stdout.readline().strip()
            if not port:
                raise BenchError("the far link did not start")
            self.far_url = f"http://127.0.0.1:{port}"
        return self.far_url

    def close(self):
        if self.link_process:
            self.link_process.terminate()
            self.link_process.wait()
        if self.nginx:
            try:
                with open(os.path.join(self.dir, "nginx", "nginx.pid")) as f:
                    os.kill(int(f.read()), signal.SIGTERM)
            except (OSError, ValueError):
                pass
        remove(self.dir)

    def path(self, name):
        return os.path.join(self.www, name)

    def warm_origin(self, names):
        """Reads the files, so that nginx sends from the page cache and does not limit the client."""
        for name in names:
            with open(self.path(name), "rb", buffering=0) as f:
                while f.read(MIB):
                    pass

    def served_bytes(self):
        """Body bytes of GETs below /logged/ so far; nginx writes a line when a request has ended."""
        with open(os.path.join(self.dir, "nginx", "access.log")) as f:
            lines = [line.split(" ", 2) for line in f]
        return sum(int(nbytes) for method, nbytes, uri in lines if method == "GET" and not uri.endswith("/\n"))
