#!/usr/bin/env bash
# penstock mount --tier through what scripts/tier/ starts: nginx, Traffic Server, Varnish, Squid, each where
# it is installed. Two mounts with caches of their own stand for two nodes.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-240}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/servers_lib.sh"
requires mount nginx curl openssl jq

make_shards "$T/www" 2 20000000
start_nginx
chmod 644 "$T/nginx/ca.pem"
good=$(sha_manifest "$T/www")
size=$(du -cb "$T"/www/*.tar | awk 'END {print $1}')
tier() { stats ".mounts[0].tier.$1"; }

# A mount with an empty cache reads everything. NAME SOURCE LIMIT OPTION...: at most LIMIT bytes from the
# origin.
node_reads() {
	local what=$1 source=$2 limit=$3
	shift 3
	rm -rf "$CACHE"
	origin_forget
	check "$what: mounts" mount_penstock "$source" --tier "$TIER" "$@"
	equal "$what: the bytes are the origin's" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
	at_least "$what: the tier sent them" $((size * share / 100)) "$(tier bytes)"
	# (On a busy machine some are late, and the origin is asked for a part of them.)
	equal "$what: the tier was not down, and no answer wrong" "0 0" \
		"$(tier 'tiers[0].down') $(tier 'tiers[0].wrong')"
	limit=$((limit + $(tier fallback_bytes)))
	umount_penstock
	at_most "$what: bytes from the origin" "$limit" "$(origin_bytes)"
}

serve() { # ENGINE SOURCE-OF-ORIGIN PROGRAM OPTION...
	local engine=$1 origin=$2 program=$3
	shift 3
	if ! command -v "$program" >/dev/null; then
		skip "penstock through $engine" "$program is not installed"
		return
	fi
	rm -rf "$T/tier"
	tier_port=$(free_port) OURS_HOST=${origin#*://}
	start_tier "$engine" --origin "$origin" "$@"
	wait_until 10 ps_tier_answers
	# (nginx, the origin, has no /none: 404.)
	node_reads "$engine, the first node" "$origin/" "$first" "${mount_options[@]}"
	node_reads "$engine, the second node" "$origin/" "$again" "${mount_options[@]}"
	stop_tier
	rm -rf "$CACHE"
	check "$engine has ended: mounts" mount_penstock "$origin/" --tier "$TIER" "${mount_options[@]}"
	equal "$engine has ended: the bytes come from the origin" "$good" \
		"$(sha_manifest "$MNT" | grep -v penstock)"
	umount_penstock
}
ps_tier_answers() { [[ $(get /none 0-0) != 500 ]]; }
OURS_PID=$$

# What must come from the tier, in hundredths, and the bytes that the first and the second node may have from
# the origin. (Varnish has no slices: a range of the second node with other bounds than the first node's
# ranges is another copy there.)
share=90 first=$((size * 110 / 100))
again=$((size / 10))
mount_options=(--cacert "$T/nginx/ca.pem")
serve nginx "$ORIGIN_TLS" nginx --cacert "$T/nginx/ca.pem"
serve trafficserver "$ORIGIN_TLS" traffic_server --cacert "$T/nginx/ca.pem"
again=$((size * 105 / 100))
mount_options=(--timeout 30s)
serve varnish "$ORIGIN" varnishd
# (Squid fetches whole objects, reads them from their beginning, and answers once it has what was asked for:
# on a busy machine it is late, and mounts turn to the origin.)
again=$((size / 2)) share=50 first=$((size * 2))
serve squid "$ORIGIN" squid
share=90

# A port that other users cannot take (docs/guides/tiers.md).
if ((EUID == 0)); then
	rm -rf "$T/tier"
	OURS_HOST=${ORIGIN#*://}
	taken() { curl -s -m 2 -o /dev/null "http://127.0.0.1:$tier_port/" || [[ $? != 7 ]]; }
	tier_port=700
	while taken; do tier_port=$((600 + RANDOM % 400)); done
	start_tier nginx --origin "$ORIGIN"
	node_reads "nginx at a port below 1024" "$ORIGIN/" $((size * 110 / 100))
	stop_tier
else
	skip "nginx at a port below 1024" "needs root"
fi

# Tiers that only mounts with a certificate may use.
check "certificates are made" "$top_srcdir/scripts/tier/certificates" --nodes 127.0.0.1,node2 "$T/pki"
for engine in nginx trafficserver; do
	program=nginx
	[[ $engine == nginx ]] || program=traffic_server
	if ! command -v "$program" >/dev/null; then
		skip "mTLS with $engine" "$program is not installed"
		continue
	fi
	rm -rf "$T/tier"
	tier_port=$(free_port) OURS_HOST=${ORIGIN#*://}
	"$top_srcdir/scripts/tier/$engine" --nodes "127.0.0.1:$tier_port" --origin "$ORIGIN" --tls \
		"$T/pki" --dir "$T/tier" \
		--size 256M >"$T/start.log" || die "$engine starts with --tls"
	TIER=https://127.0.0.1:$tier_port
	check "$engine prints its https:// URL" grep -q -- "--tier $TIER" "$T/start.log"
	for path in /shard-000000.tar /none; do
		equal "$engine, without a certificate: $path" no \
			"$(curl -sf -m 10 --cacert "$T/pki/ca.crt" -H "Host: $OURS_HOST" -o "$T/got" \
				"$TIER$path" &&
				echo yes || echo no)"
	done
	node_reads "$engine by mTLS" "$ORIGIN/" $((size * 110 / 100)) --tier-cacert "$T/pki/ca.crt" \
		--tier-cert "$T/pki/client.crt" --tier-key "$T/pki/client.key"
	tier_engine=$engine
	stop_tier
done
