#!/usr/bin/env bash
# penstock report collects what a bug report needs, without secrets, wherever they may be.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq tar

mkdir -p "$T/www" "$T/home"
echo hello >"$T/www/a.bin"
start_nginx
# Each secret has a word of its own, so that a secret that is missed shows where it came from.
plain=PLANTED
cat >"$T/penstock.conf" <<CONF
# the key is ${plain}comment
[defaults]
cache-dir = $CACHE
[pets]
source = http://name:${plain}conf@127.0.0.1:1/x/?X-Amz-Signature=${plain}query
mountpoint = $T/pets
header = X-Token: ${plain}header
user = name:${plain}user
proxy = http://name:${plain}proxy@127.0.0.1:1/
timeout = 7s
[more]
source = http://127.0.0.1:1/
mountpoint = $T/more
user = name:part${plain}whole
CONF
chmod 600 "$T/penstock.conf"
echo "X-Token: ${plain}file" >"$T/header"
chmod 600 "$T/header"
export PENSTOCK_CONFIG=$T/penstock.conf HOME=$T/home
export AWS_SECRET_ACCESS_KEY=${plain}env HF_TOKEN=hf_${plain}hub UNRELATED=${plain}other
export MY_SERVICE_PASSWORD=unremarkable PART_OF_A_SECRET=name:part AZURE_STORAGE_KEY=${plain}azure
mkdir -p "$MNT"
penstock mount "${ORIGIN/:\/\//://user:pass%3Aword@}/basic/" "$MNT" --cache-dir "$CACHE" \
	--log "$T/penstock.log" --header "X-Token: ${plain}option" --header "@$T/header" || die "mounts"
check "a file is read" cmp "$T/www/a.bin" "$MNT/a.bin"
# Lines that penstock does not write itself, but that a server's or a shell's message may contain.
cat >>"$T/penstock.log" <<LOG
get: https://host/x?X-Amz-Credential=${plain}credential&X-Amz-Signature=${plain}signature: 403
get: https://user:${plain}at@home@host/x: 401
head: http://u:${plain}/slash@host/x
request: Authorization: AWS4-HMAC-SHA256 ${plain}authorization
request: "x-amz-security-token": "${plain}session"
request: Bearer ${plain}bearer and more
told: password=${plain}password --header 'X: ${plain}shell' SharedAccessSignature=${plain}shared
told: name:part${plain}whole
told: unremarkable, AccountKey=${plain}account;EndpointSuffix=x
list: hf_abcdefghijklmnop eyJhbGciOiJIUzI1NiJ9.eyJzdWIi aVeryLongWord0OfBothCasesAndDigits1
list: https://host/kept-path/shard-000000.tar: hf://datasets/owner/name@revision: 404 Not Found
LOG

cd "$T"
check "report writes an archive" penstock report "$T/r.tar.gz"
equal "only the owner may read the archive" 600 "$(stat -c %a "$T/r.tar.gz")"
check_not "report replaces no file" penstock report "$T/r.tar.gz"
penstock report - >"$T/r2.tar.gz" 2>"$T/list" || fail "report writes to standard output"
check "report lists the files of the archive" \
	grep -Eq '^  status.json +[0-9]+ bytes  penstock status --json$' "$T/list"
mkdir x && tar xzf r.tar.gz --strip-components=1 -C x
equal "the archive has all files" \
	"environment.txt log.txt machine.txt mounts.txt penstock.conf status.json versions.txt" \
	"$(cd x && echo *)"
equal "the archive on standard output has the same files" \
	"$(ls x)" "$(tar tzf r2.tar.gz | sed 's:.*/::' | sort)"
equal "no secret is in the archive" "" "$(grep -rn "$plain" x || true)"
for secret in pass:word pass%3Aword unremarkable hf_abc eyJ aVeryLong home@; do
	check_not "the archive does not contain $secret" grep -rq -- "$secret" x
done
check "status.json is JSON" jq -e "any(.daemons[].mounts[]?; .mountpoint == \"$MNT\")" x/status.json
check "versions.txt has penstock's version" grep -q "^$(penstock --version)\$" x/versions.txt
check "versions.txt has the kernel's version" grep -qF "$(uname -r)" x/versions.txt
check "mounts.txt has the mount" grep -qF " $MNT " x/mounts.txt
check "log.txt has the log" grep -q "info: mount: .* on $MNT" x/log.txt
check "paths in the log are kept" \
	grep -qF "https://host/kept-path/shard-000000.tar: hf://datasets/owner/name@revision: 404" x/log.txt
check "queries in the log are removed" \
	grep -qxF "get: https://host/x?[out] 403" <(sed 's/\[out\]:* /[out] /' x/log.txt)
check "harmless values of the configuration are kept" grep -qx "timeout = 7s" x/penstock.conf
check "secret values of the configuration are removed" grep -qx "header = (left out)" x/penstock.conf
check "environment.txt says which variables are set" grep -qx "HF_TOKEN is set" x/environment.txt
umount_penstock
mkdir bin && printf '#!/bin/sh\nexit 1\n' >bin/ldd && chmod +x bin/ldd
check "report works without a mount, and without a program that it asks" \
	env PATH="$T/bin:$PATH" penstock report none.tar.gz
check "report works beside a penstock that is not in the PATH" \
	env PATH=/usr/bin:/bin "$(command -v penstock)" report beside.tar.gz

# A mount that does not answer, at a name that is not UTF-8.
MNT=$T/$'odd-\xe4'
mount_penstock "$ORIGIN/"
kill_daemon "$(daemon_pid)"
check "report works with a mount that has failed" penstock report "$T/odd.tar.gz"
mkdir odd && tar xzf odd.tar.gz --strip-components=1 -C odd
check "status.json has the mount and its error" \
	jq -e 'any(.daemons[]; .error and (.mountpoint | test("/odd-")))' odd/status.json

# What JSON escapes.
export QUOTED_PASSWORD='quo"ted\secret'
MNT=$T/$QUOTED_PASSWORD
mount_penstock "$ORIGIN/"
check "report works with quotes in a secret" penstock report "$T/quoted.tar.gz"
umount_penstock
mkdir q && tar xzf quoted.tar.gz --strip-components=1 -C q
check "status.json has the mount" \
	jq -e 'any(.daemons[].mounts[]?; .mountpoint | endswith("/[out]"))' q/status.json
check_not "status.json does not contain a secret with quotes" grep -q secret q/status.json
