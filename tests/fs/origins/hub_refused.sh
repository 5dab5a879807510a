#!/usr/bin/env bash
# Tokens from the usual places open a private repository, are sent to the Hub alone, and appear nowhere; the
# error of a refused or missing token, and of a gated repository, says what to do.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount

start_hub
main=$(commit a)
random_file "$main/a.tar" 3000000
echo small >"$main/b.txt"
point main a

refused() { # WHAT WORDS SOURCE OPTION...
	local what=$1 words=$2 rc=0
	shift 2
	CACHE=$T/cache-refused mount_penstock "$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: fails" 1 "$((rc != 0))"
	equal "$what: in one line" 1 "$(wc -l <"$T/out")"
	check "$what: the line says why" grep -Eq "$words" "$T/out"
	check_not "$what: nothing is mounted" is_mounted
	check "$what: the cache folder can be removed" wait_until 10 rm \
		-rf "$T/cache-refused" # the daemon may take a while to end
}
works=0
works() { # WHAT OPTION...
	local what=$1
	shift
	CACHE=$T/cache-$((++works))
	check "$what: mounts" mount_penstock hf://acme/shards "$@"
	check "$what: a file in LFS is read" cmp "$MNT/a.tar" "$main/a.tar"
	check "$what: a file in git is read" cmp "$MNT/b.txt" "$main/b.txt"
	umount_penstock
}

refused "no such repository" 'acme/none.*(log in|token)' hf://acme/none
refused "no such revision" 'no branch, tag or commit "v9"' hf://acme/shards@v9
refused "no such folder" 'not in .*acme/shards' hf://acme/shards/none/
refused "a Hub space" 'only datasets and models' hf://spaces/acme/demo
refused "a model that is written as a dataset" \
	'there is a model of that name: hf://models/acme/net$' hf://acme/net
refused "a dataset that is written as a model" \
	'there is a dataset of that name: hf://datasets/acme/shards$' hf://models/acme/shards
refused "a name with no owner that does not exist" 'none is not there' hf://models/none
refused "an owner without a name" 'hf://datasets/OWNER/NAME' hf://acme
refused "a glob that matches nothing" 'no files' 'hf://acme/shards/*.none'

secret=hf_4xYsecretTOKENzz
tell token $secret
refused "a private repository without a token" 'private.*log in' hf://acme/shards
HF_TOKEN=hf_wrong refused "a wrong token" 'does not accept your token' hf://acme/shards
HF_TOKEN="two words" refused "an invalid token" 'HF_TOKEN: not a token' hf://acme/shards

HF_TOKEN=$secret works "HF_TOKEN"
HUGGING_FACE_HUB_TOKEN=$secret works "HUGGING_FACE_HUB_TOKEN"
echo "$secret" >"$T/token"
HF_TOKEN_PATH=$T/token works "HF_TOKEN_PATH"
works "--credentials" --credentials "$T/token"
cp "$T/token" "$HF_HOME/token"
works "HF_HOME"
unset HF_HOME
mkdir -p "$T/home/.cache/huggingface"
cp "$T/token" "$T/home/.cache/huggingface/token"
HOME=$T/home XDG_CACHE_HOME='' works "the home folder"
refused "a token file that is not there" 'No such file' hf://acme/shards --credentials "$T/none"

equal "the CDN received no token" 0 "$(awk '$1 == "CDN" && $5 != "-"' "$hub/requests.log" | wc -l)"
at_least "the Hub received the token" \
	10 "$(awk '$1 == "HUB" && $5 == "Bearer_hf_4xYsecretTOKENzz"' "$hub/requests.log" | wc -l)"
check_not "the log does not have the token" grep -q "$secret" "$T/penstock.log"
check_not "no cache has the token" grep -rlq "$secret" "$T"/cache-*

tell gated
HF_TOKEN=$secret refused "a gated repository, with a token" \
	'gated.*ask for access at .*/datasets/acme/shards' hf://acme/shards
refused "a gated repository, without a token" 'gated.*ask for access.*log in' hf://acme/shards
forget gated
tell forbidden
HF_TOKEN=$secret refused "a token without the right" \
	'HTTP 403: your token may not read .*acme/shards: permit that' \
	hf://acme/shards
forget forbidden
tell page-size 1
tell next http://127.0.0.2:9/api/datasets/acme/shards/tree/x
HF_TOKEN=$secret refused "a next page on another host" 'another host: refused' hf://acme/shards
forget token
HF_ENDPOINT=file:///x refused "an endpoint that is a folder" \
	'HF_ENDPOINT: not an http or https URL' hf://acme/shards
HF_ENDPOINT=gopher://x refused "an endpoint with an unknown scheme" 'HF_ENDPOINT' hf://acme/shards
