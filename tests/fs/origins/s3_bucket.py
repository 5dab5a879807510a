#!/usr/bin/python3
"""Fills buckets of the S3 server at $S3, and compares mounts with them.

    s3_bucket.py pages BUCKET COUNT       puts COUNT small objects, page/00000 ...
    s3_bucket.py nasty BUCKET             puts keys below nasty/ that are hard to sign, to list or to show
    s3_bucket.py clashes BUCKET           puts some 4,500 keys below clashes/, many named like folders of others
    s3_bucket.py large BUCKET KEY MIB     puts an object of several parts, with pseudo-random bytes
    s3_bucket.py ranges KEY MIB PATH      compares PATH with that object: its length, and some ranges
    s3_bucket.py put BUCKET KEY TEXT
    s3_bucket.py file BUCKET KEY PATH     puts the contents of PATH
    s3_bucket.py delete BUCKET KEY
    s3_bucket.py versioned BUCKET         keeps versions from now on
    s3_bucket.py policy BUCKET JSON
    s3_bucket.py session                  prints export lines of a session's credentials
    s3_bucket.py compare BUCKET PREFIX DIR    checks that DIR has exactly the objects below PREFIX, which
                                              pages, nasty or clashes have put, by their documented
                                              names; compares the bytes of up to 200 of them
"""
import concurrent.futures
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree

NASTY = [
    "space a  b", "plus+a", "equals=a", "tilde~", "percent%", "percent%20b", "percent%2Fb", "percent%zz", "hash#a",
    "question?a", "question?versionId=a", "ampersand&a", "at@a", "colon:a", "semicolon;a", "comma,a", "star*", "bang!",
    "quote'a", 'double"a', "paren(a)", "dollar$a", "bracket[a]", "brace{1,2}", "backslash\\", "pipe|", "caret^", "tick`",
    "less<a>&amp;", "ünïcode/コード/文字", "e\u0301", "tab\there", "newline\nhere", "bell\x07", "delete\x7f", "a//b",
    "a///c", "/start", "slash/", "./dot", "x/./y", "../up", "x/../y", "..", ".", "...", "100%", "%", "%25", "%2E",
    "look%0Aalike", "look%250Aalike", "dot.", " blank ", "both", "both/below", "both-between", "deep/" * 20 + "x.tar",
    ".penstock/stats", "-rf", "~", "long" * 60,
]


class S3:
    """Sends signed requests. (Importing boto3 would take most of a second.)"""

    def __init__(self):
        self.host = urllib.parse.urlsplit(os.environ["S3"]).netloc
        self.of_thread = threading.local()

    def signed(self, method, path, query, body):
        def mac(key, text):
            return hmac.digest(key, text.encode(), "sha256")

        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": self.host, "x-amz-content-sha256": digest, "x-amz-date": now}
        if "AWS_SESSION_TOKEN" in os.environ:
            headers["x-amz-security-token"] = os.environ["AWS_SESSION_TOKEN"]
        names = ";".join(sorted(headers))
        request = "\n".join([method, path, query, *(f"{k}:{headers[k]}" for k in sorted(headers)), "", names, digest])
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        key = b"AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"].encode()
        for part in scope.split("/"):
            key = mac(key, part)
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope},"
                                    f"SignedHeaders={names},Signature={mac(key, text).hex()}")
        return headers

    def call(self, method, bucket, key="", body=b"", may=(), **query):
        """The answer's headers and body; `may`: error codes that are allowed."""
        path = urllib.parse.quote(f"/{bucket}/{key}" if key else f"/{bucket}", safe="/-_.~")
        text = "&".join(f"{k.replace('_', '-')}={urllib.parse.quote(str(v), safe='-_.~')}" for k, v in sorted(query.items()))
        for attempt in range(5):
            if not hasattr(self.of_thread, "connection"):
                self.of_thread.connection = http.client.HTTPConnection(self.host, timeout=60)
            try:
                self.of_thread.connection.request(method, path + ("?" + text if text else ""), body,
                                                  self.signed(method, path, text, body))
                answer = self.of_thread.connection.getresponse()
                data = answer.read()
                if answer.status < 500:
                    break
                problem = f"{answer.status} {data[:500]}"
            except (OSError, http.client.HTTPException) as e:
                problem = repr(e)
            del self.of_thread.connection
            time.sleep(0.2 * attempt)
        else:
            raise SystemExit(f"{method} {path}: {problem}")
        if answer.status >= 300 and answer.status not in may:
            raise SystemExit(f"{method} {path}: {answer.status} {data[:500]}")
        return answer.headers, data

    def xml(self, *args, **query):
        """The answer's elements by their names, without namespaces."""
        found = {}
        for element in xml.etree.ElementTree.fromstring(self.call(*args, **query)[1]).iter():
            found.setdefault(element.tag.rpartition("}")[2], []).append(element.text or "")
        return found


def body(key):
    rng = random.Random(key)
    return f"this is {key}\n".encode() + rng.randbytes(rng.randrange(300))


def bucket_of(s3, name):
    s3.call("PUT", name, may=(409,))


def fill(s3, bucket, keys):
    bucket_of(s3, bucket)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: s3.call("PUT", bucket, key, body(key)), keys))


def part_sizes(mib):
    return [min(8, mib - first) * 1048576 or 12345 for first in range(0, mib // 8 * 8 + 1, 8)]


def large(s3, bucket, key, mib):
    bucket_of(s3, bucket)
    rng = random.Random(key)
    upload = s3.xml("POST", bucket, key, uploads="")["UploadId"][0]
    parts = ""
    for number, nbytes in enumerate(part_sizes(mib), 1):
        headers, _ = s3.call("PUT", bucket, key, rng.randbytes(nbytes), partNumber=number, uploadId=upload)
        parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{headers['ETag']}</ETag></Part>"
    whole = f'<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{parts}</CompleteMultipartUpload>'
    s3.call("POST", bucket, key, whole.encode(), uploadId=upload)


def ranges(key, mib, path):
    rng = random.Random(key)
    data = b"".join(rng.randbytes(n) for n in part_sizes(mib))
    fd = os.open(path, os.O_RDONLY)
    assert os.fstat(fd).st_size == len(data), os.fstat(fd).st_size
    rng = random.Random(1)
    for _ in range(60):
        at, n = rng.randrange(len(data)), rng.choice((1, 17, 4096, 65536, 1 << 20))
        assert os.pread(fd, n, at) == data[at:at + n], (at, n)
    assert os.pread(fd, 100, len(data)) == b""


def part_name(part, first):
    """The name of a key's part, as penstock-mount(1) defines it."""
    lookalike = re.fullmatch(r"%(25)*(|2E|2E%2E" + ("|2Epenstock" if first else "") + ")", part)
    if part in (".", "..") or (first and part == ".penstock"):
        return part.replace(".", "%2E")
    if part == "":
        return "%"
    if lookalike:
        return "%25" + part[1:]
    part = re.sub(r"%((25)*(0[0-9A-F]|1[0-9A-F]|7F))", r"%25\1", part)
    return re.sub(r"[\x01-\x1f\x7f]", lambda m: f"%{ord(m[0]):02X}", part)


def path_of(key, keys):
    parts = key.split("/")
    names = []
    for i, part in enumerate(parts):
        name = part_name(part, i == 0)
        # A folder beside an object of the same name.
        if i + 1 < len(parts) and "/".join(parts[:i + 1]) in keys:
            name += "%00"
        names.append(name)
    return "/".join(names)


def compare(s3, bucket, prefix, directory):
    keys, more = [], {}
    while more is not None:
        page = s3.xml("GET", bucket, list_type=2, prefix=prefix, encoding_type="url", **more)
        keys += [urllib.parse.unquote_plus(key) for key in page.get("Key", [])]
        more = {"continuation_token": page["NextContinuationToken"][0]} if page["IsTruncated"][0] == "true" else None
    below = {key[len(prefix):] for key in keys}
    wanted = {path_of(key, below): prefix + key for key in below}
    seen = {os.path.relpath(os.path.join(d, f), directory) for d, _, files in os.walk(directory) for f in files}
    bad = [f"missing: {p!r}" for p in sorted(wanted.keys() - seen)]
    bad += [f"not asked for: {p!r}" for p in sorted(seen - wanted.keys())]

    def same(path):
        with open(os.path.join(directory, path), "rb") as f:
            return None if f.read() == body(wanted[path]) else f"differs: {path!r}"

    both = sorted(wanted.keys() & seen)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        bad += [b for b in pool.map(same, both[::len(both) // 200 + 1]) if b]
    print(*bad[:20], f"{len(wanted)} objects, {len(bad)} faults", sep="\n")
    return 1 if bad or not wanted else 0


def session():
    import boto3

    def client(service):
        return boto3.client(service, endpoint_url=os.environ["S3"], region_name="us-east-1")

    policy = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": ["sts:GetSessionToken", "s3:*"], "Resource": ["*"]}]}
    client("iam").put_user_policy(UserName="test", PolicyName="session", PolicyDocument=json.dumps(policy))
    c = client("sts").get_session_token()["Credentials"]
    print(f"export AWS_ACCESS_KEY_ID={c['AccessKeyId']} AWS_SECRET_ACCESS_KEY={c['SecretAccessKey']} "
          f"AWS_SESSION_TOKEN={c['SessionToken']}")


def main():
    what, *args = sys.argv[1:]
    if what == "session":
        session()
        return 0
    if what == "ranges":
        ranges(args[0], int(args[1]), args[2])
        return 0
    s3 = S3()
    if what == "pages":
        fill(s3, args[0], [f"page/{i:05}" for i in range(int(args[1]))])
    elif what == "nasty":
        fill(s3, args[0], ["nasty/" + key for key in NASTY])
    elif what == "clashes":
        rng = random.Random(5)
        fill(s3, args[0], {"clashes/" + "".join(rng.choices(["a", "-", "/", "0", "コ", "é"], k=rng.randint(1, 9)))
                           for _ in range(5000)})
    elif what == "large":
        large(s3, args[0], args[1], int(args[2]))
    elif what == "put":
        bucket_of(s3, args[0])
        s3.call("PUT", args[0], args[1], args[2].encode())
    elif what == "file":
        bucket_of(s3, args[0])
        with open(args[2], "rb") as f:
            s3.call("PUT", args[0], args[1], f.read())
    elif what == "delete":
        s3.call("DELETE", args[0], args[1])
    elif what == "versioned":
        bucket_of(s3, args[0])
        s3.call("PUT", args[0], body=b'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                b"<Status>Enabled</Status></VersioningConfiguration>", versioning="")
    elif what == "policy":
        s3.call("PUT", args[0], body=args[1].encode(), policy="")
    elif what == "compare":
        return compare(s3, *args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
