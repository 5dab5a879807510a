# shellcheck shell=bash disable=SC2154
# Web servers other than nginx, each for a folder on a free port of loopback. Read after lib.sh.

# serve NAME DIR: sets ORIGIN. NAME is apache, apache-fancy, lighttpd, caddy, rclone or python.
serve() {
	local name=$1 try
	mkdir -p "$T/$name"
	((EUID != 0)) || chmod 755 "$T" "$T/$name"
	for try in 1 2 3 4 5; do
		server_port=$(free_port)
		server_log=$T/$name.log
		export ORIGIN=http://127.0.0.1:$server_port
		"serve_${name%-*}" "$(cd "$2" && pwd -P)" "$T/$name" "$name" >"$server_log" 2>&1 &
		server_pid=$!
		if wait_until 20 ps_serves_or_gone "$server_pid" && kill -0 "$server_pid" 2>/dev/null; then
			return
		fi
	done
	die "$name starts" "try $try" "$(cat "$server_log")"
}

stop_serving() {
	kill "$server_pid" 2>/dev/null || true
	wait "$server_pid" 2>/dev/null || true
}

ps_serves_or_gone() {
	! kill -0 "$1" 2>/dev/null || curl -s -o /dev/null "$ORIGIN/"
}

serve_apache() { # DIR STATE NAME
	local modules=/usr/lib/apache2/modules options=
	[[ $3 != apache-fancy ]] || options="IndexOptions FancyIndexing HTMLTable VersionSort NameWidth=30"
	cat >"$2/conf" <<-CONF
		ServerRoot $2
		ServerName localhost
		Listen 127.0.0.1:$server_port
		PidFile $2/pid
		Mutex file:$2 default
		ErrorLog $2/error.log
		LoadModule mpm_event_module $modules/mod_mpm_event.so
		LoadModule authz_core_module $modules/mod_authz_core.so
		LoadModule dir_module $modules/mod_dir.so
		LoadModule autoindex_module $modules/mod_autoindex.so
		LoadModule mime_module $modules/mod_mime.so
		TypesConfig /dev/null
		DocumentRoot "$1"
		<Directory "$1">
		Options +Indexes
		Require all granted
		$options
		</Directory>
	CONF
	((EUID != 0)) || printf 'User nobody\nGroup nogroup\n' >>"$2/conf"
	exec apache2 -f "$2/conf" -DFOREGROUND
}

serve_lighttpd() {
	cat >"$2/conf" <<-CONF
		server.document-root = "$1"
		server.port = $server_port
		server.bind = "127.0.0.1"
		server.modules = ("mod_dirlisting")
		dir-listing.activate = "enable"
		dir-listing.encoding = "utf-8"
		mimetype.assign = (".tar" => "application/x-tar")
		static-file.etags = "disable"
		server.stat-cache-engine = "disable"
	CONF
	exec lighttpd -D -f "$2/conf"
}

serve_caddy() {
	cat >"$2/Caddyfile" <<-CONF
		{
		admin off
		auto_https off
		}
		http://127.0.0.1:$server_port {
		root * "$1"
		file_server browse
		}
	CONF
	export XDG_DATA_HOME=$2 XDG_CONFIG_HOME=$2
	exec caddy run --config "$2/Caddyfile" --adapter caddyfile
}

serve_rclone() {
	exec rclone serve http "$1" --addr "127.0.0.1:$server_port" --config /dev/null
}

serve_python() {
	exec "$python" -m http.server -d "$1" -b 127.0.0.1 "$server_port"
}
