#!/usr/bin/env bash
# A store that redirects reads to other hosts, as AIStore does. Redirects are followed only with
# --follow-redirects, with range and condition, and without anything that identifies the caller.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount jq python:http.server

start_cloud
cloud_data
printf 'KEYONE hush/one session/one\n' >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=KEYONE AWS_SECRET_ACCESS_KEY=hush/one AWS_SESSION_TOKEN=session/one

# The node serves $T/cloud after one more redirect, to itself. It logs which headers with credentials came,
# and answers such requests with 500. NODE.gone: it answers 403. NODE.loop: it redirects without end.
cat >"$T/node.py" <<'PY'
import hashlib, http.server, os, sys, urllib.parse
root, ready = sys.argv[1:]
SECRET = ("authorization", "x-amz-security-token", "cookie", "x-token", "x-amz-date", "proxy-authorization")


class Node(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        with open(ready + ".log", "a") as f:
            print(self.command, self.path, status, self.headers.get("Range", "-"), file=f)

    def do_GET(self):
        shown = [n for n in self.headers if n.lower() in SECRET]
        if shown:
            with open(ready + ".seen", "a") as f:
                print(self.path, *shown, file=f)
            return self.reply(500)
        if os.path.exists(ready + ".gone"):
            return self.reply(403)
        if os.path.exists(ready + ".loop"):
            return self.reply(307, Location=self.path)
        if "hop=1" not in self.path:
            return self.reply(302, Location=self.path + ("&" if "?" in self.path else "?") + "hop=1")
        path = os.path.join(root, urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/"))
        with open(path, "rb") as f:
            data = f.read()
        etag = '"%s"' % hashlib.md5(data).hexdigest()
        if self.headers.get("If-Match", etag) != etag:
            return self.reply(412)
        wanted = self.headers.get("Range")
        if not wanted:
            return self.reply(200, data, ETag=etag)
        first, _, last = wanted[6:].partition("-")
        first, last = int(first), min(int(last), len(data) - 1)
        self.reply(206, data[first:last + 1], ETag=etag, Content_Range="bytes %d-%d/%d" % (first, last, len(data)))

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Node)
with open(ready + ".new", "w") as f:
    f.write("http://127.0.0.1:%d" % server.server_port)
os.rename(ready + ".new", ready)
server.serve_forever()
PY
"$python" -B "$T/node.py" "$T/cloud" "$T/node" >"$T/node_server.log" 2>&1 &
wait_until 30 test -s "$T/node" || die "the node starts" "$(cat "$T/node_server.log")"

file=shard-000000.tar
unread() { cat "$MNT/$1" >/dev/null; }
same() { cmp "$MNT/$1" "$T/cloud/bucket/train/$1"; }
mount_store() {
	rm -f "$T/cloud/redirect"
	mount_penstock s3://bucket/train/ --endpoint "$CLOUD" --timeout 5s --no-passthrough "$@"
	cp "$T/node" "$T/cloud/redirect" # the listing must come from the store itself
}
check "a mount without --follow-redirects succeeds" mount_store
check_not "without --follow-redirects a redirect to another host is not followed" unread "$file"
check "the log says that the redirect is not followed" \
	grep -q "not followed without --follow-redirects" "$T/penstock.log"
check_not "the other host received no request" test -e "$T/node.log"
umount_penstock

check "a mount with --follow-redirects succeeds" \
	mount_store --follow-redirects --header 'X-Token: never-to-be-seen'
check "the bytes come from the other host" same $file
check "a second redirect is followed, with ranges" \
	grep -q "GET /bucket/train/$file?.*hop=1 206 bytes=" "$T/node.log"
check_not "the other host received no credential" test -e "$T/node.seen"
at_least "the store was asked first" 1 "$(grep -c "^KEYONE GET /bucket/train/$file 307" "$T/cloud/who.log")"
random_file "$T/cloud/bucket/train/shard-000001.tar" 2500000 other
check_not "a version that has changed on the other host is refused" same shard-000001.tar
touch "$T/node.gone"
check_not "a refusal of the other host is an error" unread shard-000002.tar
rm "$T/node.gone"
touch "$T/node.loop"
check_not "an endless redirect is an error" unread "deep er/a+b %20&#?.bin"
check "the log reports too many redirects" grep -q "more than 8 redirects" "$T/penstock.log"
rm "$T/node.loop"
check "the file is read once the redirects end" wait_until 20 same "deep er/a+b %20&#?.bin"
check_not "the other host still received no credential" test -e "$T/node.seen"
no_secrets hush session/one
umount_penstock

# A redirect from https to http is refused: this host has a certificate and redirects to the node, which has
# none.
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$T/key.pem" -out "$T/cert.pem" -days 2 \
	-subj /CN=127.0.0.1 \
	-addext subjectAltName=IP:127.0.0.1 2>/dev/null
"$python" -B - "$T" "$(cat "$T/node")" 2>"$T/tls.log" <<'PY' &
import http.server, os, ssl, sys


class Host(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(307)
        self.send_header("Location", sys.argv[2] + self.path)
        self.send_header("Content-Length", "0")  # without it OpenSSL 3.5 misses the end of TLS
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + "/cert.pem", sys.argv[1] + "/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(sys.argv[1] + "/tls.new", "w") as f:
    f.write("https://127.0.0.1:%d" % server.server_port)
os.rename(sys.argv[1] + "/tls.new", sys.argv[1] + "/tls")
server.serve_forever()
PY
wait_until 30 test -s "$T/tls" || die "the host with a certificate starts" "$(cat "$T/tls.log")"
CACHE=$T/cache-tls
check "a mount of a store that redirects to an https host succeeds" \
	mount_store --follow-redirects --cacert "$T/cert.pem"
cp "$T/tls" "$T/cloud/redirect"
check_not "a redirect from https to http is not followed" unread shard-000002.tar
check "the log reports the refused redirect" \
	grep -q "redirected from https to http: refused" "$T/penstock.log"
umount_penstock

echo none >"$T/cloud/bucket/none"
echo none >"$T/cloud/stray"
CACHE=$T/cache-stray
check_not "a listing with a key of another prefix is refused" mount_store
check "the log reports the key of another prefix" \
	grep -q "the store lists keys without the prefix" "$T/penstock.log"
rm "$T/cloud/stray"
check_not "--follow-redirects is refused for gs://" \
	mount_penstock gs://bucket/train/ --follow-redirects --no-sign-request
