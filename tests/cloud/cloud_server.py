#!/usr/bin/env python3
"""A stand-in for clouds on one port of loopback: EC2's and Google's metadata servers, a container's agent,
STS, SSO, Google's token server, and a bucket with the XML API that S3 and Google share.

    cloud_server.py DIR [ADDRESS PORT]

The server writes:
DIR/port    its port, once it listens
DIR/log     a line a request: METHOD PATH STATUS
DIR/who.log a line a request of the bucket: ACCESS_KEY METHOD PATH STATUS

The test writes (WHAT is imds, container, sts, sso, google, token, bucket):
DIR/bucket/         the objects of /bucket/
DIR/public          while the file exists, unsigned requests are allowed
DIR/ttl             seconds that new credentials live [3600]
DIR/revoke          while the file exists, credentials that are older than the file are refused
DIR/redirect        the bucket's requests get 307 to the scheme://host:port in the file
DIR/hang.WHAT       no answer while the file exists
DIR/fail.WHAT       the status of all answers
DIR/say.WHAT        the text of all answers except those to PUT
DIR/norole          the metadata service has no role
DIR/stray           a key that each listing has, whatever its prefix
DIR/more.xml        what the last page of a listing has in addition
DIR/token.container, DIR/token.web, DIR/token.sso   what clients must send
DIR/modulus         the modulus of the service account's key, hex
DIR/keys            lines "ACCESS_KEY SECRET [SESSION_TOKEN]": keys that do not expire
DIR/deny            lines "ACCESS_KEY list|get PREFIX": 403 to that key for listing the prefix, or for objects
                    below it; "Bearer" stands for requests with a token, "-" for unsigned ones
DIR/payer           the project that requests must name as the payer
DIR/refuse.REASON   as many answers of the bucket as the file has bytes are 403 with this code

Requests are verified: headers of the metadata services, signatures (SigV4 by code of its own; RS256), tokens
and their time.
"""
import base64, datetime, functools, hashlib, hmac, http.server, json, os, socketserver, sys, threading, time
import urllib.parse
from xml.sax.saxutils import escape

DIR = sys.argv[1]
LOCK = threading.Lock()
ISSUED = {}  # access key or token -> (secret, session token, until, issued at)
SERIAL = [0]


def path_of(name):
    return os.path.join(DIR, name)


def read(name, default=""):
    try:
        with open(path_of(name)) as f:
            return f.read().strip()
    except FileNotFoundError:
        return default


def stamp(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def issue(kind):
    """New keys, or a new token for kind "google"."""
    with LOCK:
        SERIAL[0] += 1
        n = SERIAL[0]
        until = time.time() + float(read("ttl", "3600"))
        if kind == "google":
            token = f"ya29.{n}-never-to-be-seen"
            ISSUED[token] = (None, None, until, time.time())
            return token, int(until - time.time())
        key = (f"ASIA{kind.upper()}{n}", f"hush/{n}+never-to-be-seen", f"session/{n}+never-to-be-seen==")
        ISSUED[key[0]] = (key[1], key[2], until, time.time())
        return key, until


def lookup(name):
    for line in read("keys").splitlines():
        if line.split(" ")[0] == name:
            return (line.split(" ") + [None])[1:3]
    found = ISSUED.get(name)
    if not found:
        return None
    if time.time() >= found[2]:
        return "expired"
    if os.path.exists(path_of("revoke")) and found[3] < os.stat(path_of("revoke")).st_mtime:
        return None
    return found[0], found[1]


def crc32c(data):
    """Base64; "" for large objects, as the computation takes a second a megabyte."""
    return base64.b64encode(crc32c_of(data).to_bytes(4, "big")).decode() if len(data) <= 200_000 else ""


@functools.lru_cache
def crc32c_of(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def md5(path):
    st = os.stat(path)
    return md5_of_version(path, st.st_ino, st.st_size, st.st_mtime_ns)


@functools.lru_cache
def md5_of_version(path, *version):
    with open(path, "rb") as f:
        return hashlib.md5(f.read())


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Refused(Exception):
    def __init__(self, status, code, text):
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", kind="text/plain", headers=()):
        body = body.encode() if isinstance(body, str) else body
        with LOCK, open(path_of("log"), "a") as log:
            log.write(f"{self.command} {self.path} {status}\n")
            if self.path.startswith("/bucket"):
                with open(path_of("who.log"), "a") as who:
                    who.write(f"{self.who()} {self.command} {self.path} {status}\n")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def who(self):
        words = self.headers.get("Authorization", "-").replace("Credential=", "").replace("/", " ").split()
        return words[1] if words[0] == "AWS4-HMAC-SHA256" else words[0]

    def check_allowed(self, what, name):
        for line in read("deny").splitlines():
            key, denied, prefix = (line + " ").split(" ")[:3]
            if key == self.who() and denied == what and name.startswith(prefix):
                raise Refused(403, "AccessDenied", "this key may not")

    def disturbed(self, what):
        while os.path.exists(path_of("hang." + what)):
            time.sleep(0.05)
        status = read("fail." + what)
        if status:
            self.reply(int(status), "", headers=[("Retry-After", "1")] if status == "429" else [])
        text = "" if status or self.command == "PUT" else read("say." + what)
        if text:
            self.reply(200, text)
        return bool(status or text)

    # Requests by their kinds ------------------------------------------------------------------------------

    def handle_any(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urllib.parse.urlsplit(self.path).path
        if b" //" in self.raw_requestline:  # in self.path http.server has joined the two slashes
            return self.reply(404)
        for start, what, do in [
            ("/latest/", "imds", self.imds),
            ("/agent/", "container", self.container),
            ("/v2/credentials/", "container", self.container),
            ("/federation/", "sso", self.sso),
            ("/token", "token", self.google_token),
            ("/computeMetadata/", "google", self.google_metadata),
            ("/bucket", "bucket", self.bucket),
        ]:
            if path.startswith(start):
                if not self.disturbed(what):
                    do(path)
                return
        if self.command == "POST" and path == "/":
            if not self.disturbed("sts"):
                self.sts()
            return
        self.reply(404)

    do_GET = do_HEAD = do_PUT = do_POST = handle_any

    # Metadata -----------------------------------------------------------------------------------------------

    def keys_json(self, kind, token_name, **more):
        key, until = issue(kind)
        names = {"AccessKeyId": key[0], "SecretAccessKey": key[1], token_name: key[2], "Expiration": stamp(until)}
        self.reply(200, json.dumps({**names, **more}), "application/json")

    def imds(self, path):
        if self.command == "PUT" and path == "/latest/api/token":
            good = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit()
            return self.reply(200 if good else 400, "imds-token==")
        if self.headers.get("X-aws-ec2-metadata-token") != "imds-token==":
            return self.reply(401)
        roles = "/latest/meta-data/iam/security-credentials/"
        if path == roles:
            return self.reply(404) if os.path.exists(path_of("norole")) else self.reply(200, "the-role")
        if path == roles + "the-role":
            return self.keys_json("imds", "Token", Code="Success", Type="AWS-HMAC")
        self.reply(404)

    def container(self, path):
        wanted = read("token.container")
        if wanted and self.headers.get("Authorization") != wanted:
            return self.reply(401, json.dumps({"code": "Unauthorized", "message": "wrong token"}))
        self.keys_json("agent", "Token", RoleArn="arn:aws:iam::1:role/x")

    def google_metadata(self, path):
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.reply(403)
        token, seconds = issue("google")
        self.reply(200, json.dumps({"access_token": token, "expires_in": seconds, "token_type": "Bearer"}))

    # Token services -----------------------------------------------------------------------------------------

    def form(self):
        return dict(urllib.parse.parse_qsl(self.body.decode(), keep_blank_values=True))

    def sts(self):
        form = self.form()
        action = form.get("Action", "")
        try:
            if action == "AssumeRoleWithWebIdentity":
                if form["WebIdentityToken"] != read("token.web"):
                    raise Refused(400, "InvalidIdentityToken", "the token cannot be verified")
            elif action == "AssumeRole":
                self.verify_sigv4("sts", hashlib.sha256(self.body).hexdigest())
                if form.get("ExternalId", "") != read("external_id"):
                    raise Refused(403, "AccessDenied", "the external id is another")
            else:
                raise Refused(400, "InvalidAction", "no such action")
            if not form["RoleArn"].startswith("arn:aws:iam::") or not form["RoleSessionName"]:
                raise Refused(400, "ValidationError", "no role")
        except Refused as e:
            return self.reply(
                e.status,
                f"<ErrorResponse xmlns='x'><Error><Type>Sender</Type><Code>{e.code}</Code><Message>{escape(e.text)}"
                "</Message></Error></ErrorResponse>",
                "text/xml",
            )
        key, until = issue("sts")
        self.reply(
            200,
            f"<{action}Response xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><{action}Result><AssumedRoleUser>"
            f"<Arn>x</Arn></AssumedRoleUser><Credentials><AccessKeyId>{key[0]}</AccessKeyId><SecretAccessKey>{key[1]}"
            f"</SecretAccessKey><SessionToken>{key[2]}</SessionToken><Expiration>{stamp(until)}</Expiration>"
            f"</Credentials></{action}Result></{action}Response>",
            "text/xml",
        )

    def sso(self, path):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if self.headers.get("x-amz-sso_bearer_token") != read("token.sso") or query.get("account_id") != "123456789012":
            return self.reply(401, json.dumps({"message": "Session token not found or invalid"}))
        key, until = issue("sso")
        names = {"accessKeyId": key[0], "secretAccessKey": key[1], "sessionToken": key[2], "expiration": int(until * 1000)}
        self.reply(200, json.dumps({"roleCredentials": names}), "application/json")

    def google_token(self, path):
        form = self.form()
        error = None
        if form.get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            error = self.check_assertion(form.get("assertion", ""))
        elif form.get("grant_type") != "refresh_token" or form.get("refresh_token") != read("token.refresh"):
            error = "Bad Request"
        if error:
            return self.reply(400, json.dumps({"error": "invalid_grant", "error_description": error}))
        token, seconds = issue("google")
        self.reply(200, json.dumps({"access_token": token, "expires_in": seconds, "token_type": "Bearer"}))

    def check_assertion(self, assertion):
        def decode(part):
            return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

        try:
            head, claims, signature = assertion.split(".")
            says = json.loads(decode(claims))
            if json.loads(decode(head))["alg"] != "RS256" or not says["scope"].endswith("devstorage.read_only"):
                return "wrong algorithm or scope"
            if abs(says["iat"] - time.time()) > 60 or says["exp"] - says["iat"] > 3600:
                return "wrong times"
            if says["aud"] != f"http://{self.headers['Host']}/token" or says["iss"] != "me@project.example":
                return "wrong audience or issuer"
            modulus = int(read("modulus"), 16)
            size = (modulus.bit_length() + 7) // 8
            # PKCS #1 v1.5 of SHA-256, with the usual public exponent.
            seen = pow(int.from_bytes(decode(signature), "big"), 65537, modulus).to_bytes(size, "big")
            digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(
                f"{head}.{claims}".encode()
            ).digest()
            wanted = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
            return None if seen == wanted else "Invalid JWT Signature."
        except (ValueError, KeyError, OverflowError):
            return "not an assertion"

    # Signatures ---------------------------------------------------------------------------------------------

    def verify_sigv4(self, service, payload):
        words = self.headers.get("Authorization", "").replace(",", " ").split()
        if not words or words[0] != "AWS4-HMAC-SHA256":
            raise Refused(403, "AccessDenied", "not signed")
        parts = dict(word.split("=", 1) for word in words[1:])
        name, day, region, for_service, _ = parts["Credential"].split("/")
        found = lookup(name)
        if found == "expired":
            raise Refused(400 if service == "s3" else 403, "ExpiredToken", "The provided token has expired.")
        if not found:
            raise Refused(403, "InvalidAccessKeyId", "no such key")
        if found[1] and self.headers.get("x-amz-security-token") != found[1]:
            raise Refused(403, "InvalidToken", "the session's token is another")
        date = self.headers.get("x-amz-date", "")
        url = urllib.parse.urlsplit(self.path)
        query = "&".join(sorted(p if "=" in p else p + "=" for p in url.query.split("&"))) if url.query else ""
        names = parts["SignedHeaders"].split(";")
        for must in ["host", "x-amz-date"] + (["x-amz-security-token"] if found[1] else []):
            if must not in names:
                raise Refused(403, "SignatureDoesNotMatch", f"{must} is not signed")
        headers = "".join(f"{n}:{' '.join(self.headers.get(n, '').split())}\n" for n in names)
        canonical = "\n".join([self.command, url.path, query, headers, ";".join(names), payload])
        scope = f"{day}/{region}/{for_service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = ("AWS4" + found[0]).encode()
        for part in (day, region, service, "aws4_request"):
            key = mac(key, part)
        if not hmac.compare_digest(mac(key, text).hex(), parts["Signature"]):
            raise Refused(403, "SignatureDoesNotMatch", "the signature is another")

    def authorise(self):
        if os.path.exists(path_of("payer")) and self.headers.get("x-goog-user-project") != read("payer"):
            raise Refused(400, "UserProjectMissing", "Bucket is a requester pays bucket but no user project provided.")
        for name in os.listdir(DIR):
            if name.startswith("refuse.") and os.path.getsize(path_of(name)):
                os.truncate(path_of(name), os.path.getsize(path_of(name)) - 1)
                raise Refused(403, name[7:], "as told")
        authorization = self.headers.get("Authorization", "")
        if authorization.startswith("Bearer "):
            found = lookup(authorization[7:])
            if not found or found == "expired":
                raise Refused(401, "AuthenticationRequired", "Invalid Credentials")
        elif authorization:
            self.verify_sigv4("s3", self.headers.get("x-amz-content-sha256", ""))
        elif not os.path.exists(path_of("public")):
            raise Refused(403, "AccessDenied", "Anonymous caller does not have storage.objects.list access.")

    # The bucket ---------------------------------------------------------------------------------------------

    def bucket(self, path):
        try:
            self.authorise()
            if read("redirect") and "rk=1" not in self.path:
                there = read("redirect") + self.path + ("&" if "?" in self.path else "?") + "rk=1"
                return self.reply(307, b"", headers=[("Location", there)])
            key = urllib.parse.unquote(path[len("/bucket/") :])
            if not key:
                self.list_objects()
            else:
                self.check_allowed("get", key)
                self.get_object(key)
        except Refused as e:
            body = f"<?xml version='1.0'?><Error><Code>{e.code}</Code><Message>{escape(e.text)}</Message></Error>"
            self.reply(e.status, body, "application/xml")

    def list_objects(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        self.check_allowed("list", query.get("prefix", ""))
        root = path_of("bucket")
        keys = sorted(
            os.path.relpath(os.path.join(d, f), root) for d, _, files in os.walk(root) for f in files
        )
        if os.path.exists(path_of("folders")):  # as consoles do: an empty object for each folder
            keys = sorted(keys + [os.path.relpath(os.path.join(d, s), root) + "/" for d, sub, _ in os.walk(root) for s in sub])
        after = query.get("continuation-token", query.get("start-after", ""))
        keys = [k for k in keys if k.startswith(query.get("prefix", "")) and k > after]
        keys += [read("stray")] if read("stray") else []
        limit = min(int(query.get("max-keys", "1000")), int(read("page", "1000")))
        page, more = keys[:limit], len(keys) > limit
        show = urllib.parse.quote if query.get("encoding-type") == "url" else escape
        body = "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
        body += f"<Name>bucket</Name><Prefix>{show(query.get('prefix', ''))}</Prefix><KeyCount>{len(page)}</KeyCount>"
        body += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        body += "<EncodingType>url</EncodingType>" if query.get("encoding-type") == "url" else ""
        body += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        for k in page:
            st = os.stat(os.path.join(root, k))
            body += f"<Contents><Key>{show(k)}</Key><Generation>{st.st_mtime_ns // 1000}</Generation><LastModified>"
            body += f"{stamp(st.st_mtime)[:-1]}.000Z</LastModified><ETag>{self.etag(k)}</ETag><Size>{0 if k.endswith('/') else st.st_size}</Size></Contents>"
        body += "" if more else read("more.xml")
        self.reply(200, body + "</ListBucketResult>", "application/xml; charset=UTF-8")

    def etag(self, key):
        if key.endswith("/"):
            return '"d41d8cd98f00b204e9800998ecf8427e"'
        parts = "-3" if os.path.exists(path_of("etags_of_parts")) else ""
        return '"' + md5(os.path.join(path_of("bucket"), key)).hexdigest() + parts + '"'

    def get_object(self, key):
        try:
            with open(os.path.join(path_of("bucket"), key), "rb") as f:
                data = f.read()
        except OSError:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        stored_gzip = key.endswith(".transcoded")
        headers = [
            ("ETag", self.etag(key)),
            ("Last-Modified", self.date_time_string(os.path.getmtime(os.path.join(path_of("bucket"), key)))),
            ("Accept-Ranges", "bytes"),
            ("x-goog-generation", "1"),
            ("x-goog-stored-content-encoding", "gzip" if stored_gzip else "identity"),
            ("x-goog-hash", "crc32c=" + crc32c(data if not key.endswith(".damaged") else data + b"!")),
            ("x-goog-hash", "md5=" + base64.b64encode(md5(os.path.join(path_of("bucket"), key)).digest()).decode()),
        ]
        kind = read("amz_checksums")  # as in Amazon's buckets: only a HEAD that asks for checksums gets one
        if kind:
            headers = [h for h in headers if h[0] != "x-goog-hash"]
        if kind and self.command == "HEAD" and self.headers.get("x-amz-checksum-mode") == "ENABLED" and kind != "none":
            said = hashlib.sha256(data if not key.endswith(".damaged") else data + b"!").digest()
            headers.append(("x-amz-checksum-sha256", base64.b64encode(said).decode()))
            if kind != "untold":  # some stores give a checksum of parts as if it were of the object
                headers.append(("x-amz-checksum-type", kind))
        if self.headers.get("If-Match", self.etag(key)) != self.etag(key):
            return self.reply(412, b"", headers=headers)
        if stored_gzip and "gzip" not in self.headers.get("Accept-Encoding", ""):
            import gzip

            # The server decompresses: it sends the whole object, whatever range was asked for.
            return self.reply(200, gzip.decompress(data), headers=headers + [("Warning", "214 UploadServer gunzipped")])
        if stored_gzip:
            headers.append(("Content-Encoding", "gzip"))
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            first, last = wanted[6:].split("-")
            first, last = int(first), min(int(last or len(data)), len(data) - 1)
            if first >= len(data):
                return self.reply(416, b"", headers=headers + [("Content-Range", f"bytes */{len(data)}")])
            part = ("Content-Range", f"bytes {first}-{last}/{len(data)}")
            return self.reply(206, data[first : last + 1], "application/octet-stream", headers + [part])
        self.reply(200, data, "application/octet-stream", headers)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)


def main():
    host = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    server = Server((host, int(sys.argv[3]) if len(sys.argv) > 3 else 0), Handler)
    open(path_of("log"), "a").close()
    with open(path_of("port.new"), "w") as f:
        f.write(str(server.server_port))
    os.rename(path_of("port.new"), path_of("port"))
    server.serve_forever()


main()
