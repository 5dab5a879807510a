"""Faults that a real nginx can show: one server for the whole matrix, with a path prefix for each cell. A
cell's fault begins when its flag file exists.
"""

import os
import socket
import subprocess
import time

from faults.origin import NAME, SOUND, random_data

FAULTS = [
    ("nginx: none", "right"),
    ("nginx: 503", "error"),
    ("nginx: 500", "error"),
    ("nginx: 429, Retry-After", "error"),
    ("nginx: 403", "error"),
    ("nginx: 404", "error"),
    ("nginx: drops the connection", "error"),
    ("nginx: redirect loop", "error"),
    ("nginx: no ranges", "error"),
    ("nginx: 2 MB/s", "right"),
]

ACTS = {
    "503": "return 503;",
    "500": "return 500;",
    "429, Retry-After": "add_header Retry-After 1 always; return 429;",
    "403": "return 403;",
    "404": "return 404;",
    "drops the connection": "return 444;",
    "redirect loop": "return 302 $request_uri;",
    "no ranges": "max_ranges 0; alias {www}/;",
    "2 MB/s": "limit_rate 2m; alias {www}/;",
}


class Nginx:
    def __init__(self, directory, nbytes):
        self.dir, self.www = directory, os.path.join(directory, "www")
        os.makedirs(os.path.join(directory, "tmp"))
        os.mkdir(self.www)
        os.chmod(directory, 0o755)
        for name in (NAME, SOUND):
            with open(os.path.join(self.www, name), "wb") as f:
                f.write(random_data(nbytes, 1))
        acts = " ".join(f"location /act{i}/ {{ {act.format(www=self.www)} }}" for i, act in enumerate(ACTS.values()))
        armed = "\n".join(f"if (-f {self.dir}/armed.{i}.$cell) {{ rewrite ^/cell/[^/]+/({NAME})$ /act{i}/$1 last; }}"
                          for i in range(len(ACTS)))
        for _ in range(5):
            with socket.create_server(("127.0.0.1", 0)) as s:
                self.port = s.getsockname()[1]
            with open(os.path.join(directory, "nginx.conf"), "w") as f:
                f.write(f"""
{"user root;" if os.geteuid() == 0 else ""} worker_processes 1; pid nginx.pid; error_log error.log; daemon on;
events {{ worker_connections 2048; }}
http {{
	access_log off; default_type application/octet-stream; keepalive_requests 1000000;
	client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
	map $uri $cell {{ default none; ~^/cell/([^/]+)/ $1; }}
	server {{
		listen 127.0.0.1:{self.port} backlog=512;
		location /cell/ {{ {armed} rewrite ^/cell/[^/]+/(.*)$ /plain/$1 last; }}
		location /plain/ {{ alias {self.www}/; autoindex on; }}
		{acts}
	}}
}}
""")
            r = subprocess.run(["nginx", "-p", directory + "/", "-c", os.path.join(directory, "nginx.conf")],
                               capture_output=True, text=True)
            if r.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(f"nginx does not start: {r.stderr}")

    def stop(self):
        subprocess.run(["nginx", "-p", self.dir + "/", "-c", os.path.join(self.dir, "nginx.conf"), "-s", "stop"],
                       capture_output=True)


class NginxOrigin:
    def __init__(self, nginx, fault, cell):
        self.dir, self.cell = nginx["dir"], cell
        self.url = f"http://127.0.0.1:{nginx['port']}/cell/{cell}/"
        name = fault.removeprefix("nginx: ")
        self.flag = None if name == "none" else os.path.join(self.dir, f"armed.{list(ACTS).index(name)}.{cell}")

    def arm(self):
        if self.flag:
            open(self.flag, "w").close()

    def stop(self):
        if self.flag and os.path.exists(self.flag):
            os.unlink(self.flag)
