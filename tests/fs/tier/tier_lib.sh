# shellcheck shell=bash
# Tiers for the tests: nginx with slices of 4 MiB and proxy_cache, each on a port of its own.
#
# start_tiers N [UPSTREAM]: starts N of them in front of UPSTREAM [$ORIGIN]. Sets TIERS (their URLs, with
# commas) and TIER[1..N]. $T/tierN/access.log has a line a request: method, URI, status, bytes, Range, then
# all that could hold a secret.
declare -a TIER
start_tiers() {
	local n=$1 upstream=${2:-$ORIGIN} i
	TIERS=
	for ((i = 1; i <= n; i++)); do
		start_tier "$i" "$upstream"
		TIERS+=${TIERS:+,}${TIER[i]}
	done
}

# tier_conf I PORT UPSTREAM
tier_conf() {
	local dir=$T/tier$1
	((EUID != 0)) || echo "user root;"
	cat <<-CONF
		worker_processes 1; pid $dir/nginx.pid; error_log $dir/error.log notice; daemon on;
		env PS_TEST_DIR;
		events { worker_connections 4096; }
		http {
		log_format asked '\$request_method \$request_uri \$status \$body_bytes_sent \$http_range | \$http_host |'
			' \$http_authorization \$http_x_amz_security_token \$http_x_token \$http_cookie | \$upstream_cache_status';
		access_log $dir/access.log asked;
		client_body_temp_path $dir/tmp/b; proxy_temp_path $dir/tmp/p; fastcgi_temp_path $dir/tmp/f;
		uwsgi_temp_path $dir/tmp/u; scgi_temp_path $dir/tmp/s;
		proxy_cache_path $dir/cache levels=2 keys_zone=slices:10m max_size=${TIER_MAX:-10g} inactive=1d
			use_temp_path=off manager_files=1000 manager_threshold=500ms;
		upstream origin { server ${3#*://}; keepalive 64; }
		server {
		listen $2;
		location / {
			slice 4m;
			proxy_pass ${3%%://*}://origin;
			proxy_http_version 1.1;
			proxy_set_header Host \$http_host;
			proxy_set_header Connection "";
			proxy_set_header Range \$slice_range;
			proxy_set_header If-Match \$http_if_match;
			proxy_cache slices;
			proxy_cache_key ${TIER_KEY:-\$http_host\$request_uri\$http_if_match\$slice_range};
			proxy_cache_valid 206 1d;
			proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;
			proxy_ssl_verify off; proxy_ignore_client_abort on;
			${TIER_CONF-}
		}
		}
		}
	CONF
}

start_tier() {
	local dir=$T/tier$1 port
	port=${TIER[$1]:-}
	port=${port##*:}
	[[ $port ]] || port=$(free_port)
	mkdir -p "$dir/tmp" "$dir/cache"
	: >>"$dir/access.log"
	tier_conf "$1" "127.0.0.1:$port" "$2" >"$dir/nginx.conf"
	nginx -p "$dir/" -c "$dir/nginx.conf" >"$dir/start.log" 2>&1 || die "tier $1 starts" "$(cat "$dir/start.log")"
	TIER[$1]=http://127.0.0.1:$port
}

kill_tier() {
	local master workers
	master=$(cat "$T/tier$1/nginx.pid")
	read -ra workers <"/proc/$master/task/$master/children" || true
	kill -KILL "$master" "${workers[@]}"
	rm -f "$T/tier$1/nginx.pid"
}

# tier_bytes I...: body bytes that these tiers sent.
tier_bytes() {
	local i
	for i in "$@"; do cat "$T/tier$i/access.log"; done | awk '{sum += $4} END {printf "%.0f\n", sum}'
}
# tiers_forget I...: empties their logs. (A request that its client has given up is logged only once the tier
# has the whole slice.)
tiers_forget() {
	local i before=
	while [[ $before != "$(cat "$T"/tier*/access.log | wc -c)" ]]; do
		before=$(cat "$T"/tier*/access.log | wc -c)
		sleep 0.2
	done
	for i in "$@"; do : >"$T/tier$i/access.log"; done
}
