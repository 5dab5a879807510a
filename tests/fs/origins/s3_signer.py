#!/usr/bin/python3
"""Compares our signatures with botocore's, for random keys, queries, headers and regions."""
import os
import random
import subprocess
import sys
from datetime import datetime, timezone

try:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.config import Config
    from botocore.credentials import Credentials
    import botocore.auth
except ImportError:
    print("1..0 # SKIP python3-boto3 is not installed")
    sys.exit(0)

SIGNER = os.path.join(os.environ.get("top_builddir", "."), "tests/fs/origins/s3_signer")
COUNT = 500
LETTERS = [chr(c) for c in range(1, 127)] + list("äéßλж日本語😀") + list("/%+ ~.=&") * 8


def word(rng, most):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(most)))


def hexed(text):
    return text.encode().hex() or "="


def main():
    seed = int(os.environ.get("PENSTOCK_TEST_SEED", "1"))
    rng = random.Random(seed)
    lines, expected, told = [], [], []
    when = [None]

    class Clock(datetime):
        @classmethod
        def utcnow(cls):
            return when[0].replace(tzinfo=None)

        @classmethod
        def now(cls, tz=None):
            return when[0]

    # botocore asks the clock for the time of the signature: one way in old versions, another in new ones.
    botocore.auth.datetime = type("module", (), {"datetime": Clock, "timezone": timezone})
    if hasattr(botocore.auth, "get_current_datetime"):
        botocore.auth.get_current_datetime = lambda remove_tzinfo=True: when[0].replace(tzinfo=None)

    for _ in range(COUNT):
        when[0] = datetime.fromtimestamp(rng.randrange(1, 4102444800), timezone.utc)
        key, region = "/" + word(rng, 60), rng.choice(["us-east-1", "eu-central-1", "auto", "cn-north-1"])
        secret, token = "S" + word(rng, 40), rng.choice([None, "token/+=" + str(rng.random())])
        names = {word(rng, 8) + str(i) for i in range(rng.randrange(8))}
        query = [(name, word(rng, 20)) for name in sorted(names)]
        rng.shuffle(query)
        quoted = "".join(chr(b) if chr(b).isalnum() and b < 128 or chr(b) in "/-._~" else f"%{b:02X}" for b in key.encode())
        request = AWSRequest(method=rng.choice(["GET", "HEAD"]), url="https://host.example:8443" + quoted, params=query)
        if rng.random() < 0.3:
            request.headers["x-amz-request-payer"] = "requester"
        request.context["client_config"] = Config(s3={"payload_signing_enabled": False})
        auth = S3SigV4Auth(Credentials("AKIDEXAMPLE", secret, token), "s3", region)
        auth.add_auth(request)
        expected.append(request.headers["Authorization"])
        told.append((key, query))
        headers = [("host", "host.example:8443")]
        headers += sorted((k.lower(), v) for k, v in request.headers.items() if k.lower().startswith("x-amz-"))
        time = request.headers["X-Amz-Date"]
        line = [hexed(w) for w in (request.method, key, "AKIDEXAMPLE", secret, time, region)]
        line += [hexed(w) for pair in headers for w in pair] + ["-"] + [hexed(w) for pair in query for w in pair]
        lines.append(" ".join(line) + "\n")

    answer = subprocess.run([SIGNER], input="".join(lines), capture_output=True, text=True, check=True, timeout=60)
    seen = [line.split(" ", 2)[2] for line in answer.stdout.splitlines()]
    bad = [i for i in range(COUNT) if i >= len(seen) or seen[i] != expected[i]]
    print("1..1")
    print(f"{'not ' if bad else ''}ok 1 - {COUNT} random requests are signed as botocore signs them (seed {seed})")
    for i in bad[:3]:
        print(f"# {told[i]!r}\n#   ours: {seen[i:i + 1]}\n#   botocore's: {expected[i]}")
    print(f"# {len(bad)} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
