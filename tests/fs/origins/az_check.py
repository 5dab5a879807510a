#!/usr/bin/python3
"""Checks the stand-in with Microsoft's own client: the client's signatures are accepted, wrong ones refused.
Makes SAS tokens, too.

    az_check.py check URL KEY           lists and reads the container "data" by SharedKey and by SAS; a wrong key is refused
    az_check.py sas KEY PERMISSIONS SECONDS   prints a service SAS for the container "data" (without
    azure-storage-blob)
"""
import base64
import hashlib
import hmac
import sys
import time
import urllib.parse


def sas(key, permissions, seconds):
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    fields = [permissions, "", end, "/blob/acct/data", "", "", "", "2021-06-08", "c", "", "", "", "", "", "", ""]
    signature = base64.b64encode(hmac.new(base64.b64decode(key), "\n".join(fields).encode(), hashlib.sha256).digest()).decode()
    return urllib.parse.urlencode({"sp": permissions, "se": end, "sv": "2021-06-08", "sr": "c", "sig": signature})


def check(url, key):
    import datetime
    from azure.core.exceptions import ClientAuthenticationError
    from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

    def read(credential):
        service = BlobServiceClient(url, credential=credential, retry_total=0)
        container = service.get_container_client("data")
        names = [b.name for b in container.list_blobs(name_starts_with="train/")]
        assert names, "no blobs"
        files = [n for n in names if n.endswith(".bin")]
        for name in files[:4]:
            blob = container.get_blob_client(name)
            properties = blob.get_blob_properties()
            data = blob.download_blob(offset=10, length=100).readall()
            assert len(data) == min(100, properties.size - 10), (name, len(data))
        return sorted(files)

    keys = {"account_name": "acct", "account_key": key}
    by_key = read(keys)
    token = generate_container_sas("acct", "data", account_key=key, permission=ContainerSasPermissions(read=True, list=True),
                                   expiry=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1))
    assert read(token) == by_key
    for wrong in ({**keys, "account_key": base64.b64encode(b"wrong" * 8).decode()}, token.replace("sig=", "sig=A")):
        try:
            read(wrong)
        except ClientAuthenticationError:
            continue
        raise AssertionError("a wrong signature was accepted")
    print(len(by_key), token)


if sys.argv[1] == "sas":
    print(sas(sys.argv[2], sys.argv[3], int(sys.argv[4])))
else:
    check(sys.argv[2], sys.argv[3])
