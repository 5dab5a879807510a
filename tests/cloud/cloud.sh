# shellcheck shell=bash disable=SC2154,SC2034
# For tests that need a cloud: tests/cloud/cloud_server.py on loopback. Sourced after lib.sh.

# start_cloud [ADDRESS PORT]: sets CLOUD (http://127.0.0.1:PORT) and CLOUD_HOST (127.0.0.1:PORT). The
# server's files are below $T/cloud: its objects in bucket/, its log in log. This machine's own credentials
# are hidden.
start_cloud() {
	local name
	for name in "${!AWS_@}" "${!GOOGLE_@}" "${!GS_@}" "${!GCE_@}" \
		"${!CLOUDSDK_@}" BOTO_CONFIG STORAGE_EMULATOR_HOST; do
		unset "$name"
	done
	export HOME=$T/home AWS_EC2_METADATA_DISABLED=true NO_GCE_CHECK=true
	mkdir -p "$HOME/.aws" "$T/cloud/bucket"
	"$python" -B "$top_srcdir/tests/cloud/cloud_server.py" "$T/cloud" "$@" >"$T/cloud_server.log" 2>&1 &
	wait_until 60 test -s "$T/cloud/port" || die "the cloud starts" "$(cat "$T/cloud_server.log")"
	CLOUD_HOST=127.0.0.1:$(cat "$T/cloud/port")
	CLOUD=http://$CLOUD_HOST
}

# cloud_seen PATTERN: prints how many lines of the log match.
cloud_seen() {
	grep -Ec -- "$1" "$T/cloud/log" || true
}

# cloud_data: makes objects below bucket/train, and $T/manifest of them.
cloud_data() {
	make_shards "$T/cloud/bucket/train" 3 2500000
	mkdir -p "$T/cloud/bucket/train/deep er"
	random_file "$T/cloud/bucket/train/deep er/a+b %20&#?.bin" 1500001
	sha_manifest "$T/cloud/bucket/train" >"$T/manifest"
}

# no_secrets [WORD...]: checks that no secret of the server and no WORD is where others may see it.
no_secrets() {
	local words=never-to-be-seen pid
	local word
	for word; do words+="|$word"; done
	check_not "no secret is in the log or the cache" grep -rqaE "$words" "$T/penstock.log" "$CACHE"
	pid=$(daemon_pid) || return 0
	check_not "no secret is in the daemon's command line or environment" \
		grep -qaE "$words" "/proc/$pid/cmdline" \
		"/proc/$pid/environ"
	check_not "no secret is in the statistics" grep -rqaE "$words" "$MNT/.penstock/stats" \
		"$MNT/.penstock/metrics" \
		"$MNT/.penstock/cache_metrics"
}
