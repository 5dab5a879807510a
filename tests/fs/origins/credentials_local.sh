#!/usr/bin/env bash
# The addresses at which clouds' machines and containers find their metadata. The test runs in a network
# namespace of its own, where nothing else answers.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount root ip unshare
unshare -n true 2>"$T/unshare.out" || skip_all "no network namespace can be made"
[[ ${1-} == inside ]] || exec unshare -n bash "$0" inside

ip link set lo up
for address in 169.254.169.254 169.254.170.2; do
	ip address add "$address/32" dev lo
done
start_cloud 0.0.0.0 80
cloud_data
unset AWS_EC2_METADATA_DISABLED NO_GCE_CHECK

works() { # WHAT SOURCE
	rm -rf "$CACHE"
	check "$1: mounts" mount_penstock "$2" --endpoint "$CLOUD"
	check "$1: right bytes" read_tree 1m
	umount_penstock
}

works "an instance's role" s3://bucket/train/
at_least "the role was asked for at the instance's address" 1 "$(cloud_seen 'the-role 200')"
AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/credentials/1 works "a container's agent" s3://bucket/train/
at_least "the agent was asked at its address" 1 "$(cloud_seen '/v2/credentials/1 200')"

# Requests for metadata do not use the proxy.
https_proxy=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 no_proxy=127.0.0.1 \
	works "an instance's role beside a proxy" s3://bucket/train/
