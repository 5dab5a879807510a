#!/usr/bin/env bash
# penstock report: what a report of a fault needs, and no secret, wherever one may be.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq tar

mkdir -p "$T/www" "$T/home"
echo hello >"$T/www/a.bin"
start_nginx
# Each secret has a word of its own, so that what is missed says where it came from.
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
CONF
chmod 600 "$T/penstock.conf"
echo "X-Token: ${plain}file" >"$T/header"
chmod 600 "$T/header"
export PENSTOCK_CONFIG=$T/penstock.conf HOME=$T/home
export AWS_SECRET_ACCESS_KEY=${plain}env HF_TOKEN=hf_${plain}hub UNRELATED=${plain}other
export MY_SERVICE_PASSWORD=unremarkable AZURE_STORAGE_KEY=${plain}azure
mkdir -p "$MNT"
penstock mount "${ORIGIN/:\/\//://user:pass%3Aword@}/basic/" "$MNT" --cache-dir "$CACHE" \
	--log "$T/penstock.log" --header "X-Token: ${plain}option" --header-file "$T/header" || die "mounts"
check "a file is read" cmp "$T/www/a.bin" "$MNT/a.bin"
# What no penstock writes, and somebody's server or shell may.
cat >>"$T/penstock.log" <<LOG
get: https://host/x?X-Amz-Credential=${plain}credential&X-Amz-Signature=${plain}signature: 403
get: https://user:${plain}at@home@host/x: 401
head: http://u:${plain}/slash@host/x
request: Authorization: AWS4-HMAC-SHA256 ${plain}authorization
request: "x-amz-security-token": "${plain}session"
request: Bearer ${plain}bearer and more
told: password=${plain}password --header 'X: ${plain}shell' SharedAccessSignature=${plain}shared
told: unremarkable, AccountKey=${plain}account;EndpointSuffix=x
list: hf_abcdefghijklmnop eyJhbGciOiJIUzI1NiJ9.eyJzdWIi aVeryLongWord0OfBothCasesAndDigits1
list: https://host/kept-path/shard-000000.tar: hf://datasets/owner/name@revision: 404 Not Found
LOG

cd "$T"
check "writes an archive" penstock report "$T/r.tar.gz"
equal "for its owner alone" 600 "$(stat -c %a "$T/r.tar.gz")"
check_not "and replaces none" penstock report "$T/r.tar.gz"
penstock report - >"$T/r2.tar.gz" 2>"$T/list" || fail "to standard output"
check "what is in it is said" grep -Eq '^  status.json +[0-9]+ bytes  penstock status --json$' "$T/list"
mkdir x && tar xzf r.tar.gz --strip-components=1 -C x
equal "its files" "environment.txt log.txt machine.txt mounts.txt penstock.conf status.json versions.txt" \
	"$(cd x && echo *)"
equal "both are the same files" "$(ls x)" "$(tar tzf r2.tar.gz | sed 's:.*/::' | sort)"
equal "no secret is in it" "" "$(grep -rn "$plain" x || true)"
for secret in pass:word pass%3Aword unremarkable hf_abc eyJ aVeryLong home@; do
	check_not "nor $secret" grep -rq -- "$secret" x
done
check "status.json is JSON" jq -e "any(.[].mounts[]?; .mountpoint == \"$MNT\")" x/status.json
check "the version" grep -q "^$(penstock --version)\$" x/versions.txt
check "the kernel" grep -qF "$(uname -r)" x/versions.txt
check "the mount" grep -qF " $MNT " x/mounts.txt
check "the log" grep -q "info: mount: .* on $MNT" x/log.txt
check "paths stay" \
	grep -qF "https://host/kept-path/shard-000000.tar: hf://datasets/owner/name@revision: 404" x/log.txt
check "queries do not" grep -qxF "get: https://host/x?[out] 403" <(sed 's/\[out\]:* /[out] /' x/log.txt)
check "keys of the configuration" grep -qx "timeout = 7s" x/penstock.conf
check "without secret values" grep -qx "header = (left out)" x/penstock.conf
check "a variable that is set" grep -qx "HF_TOKEN is set" x/environment.txt
umount_penstock
check "without a mount, too" penstock report none.tar.gz
