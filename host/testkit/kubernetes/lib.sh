# Shared by up.sh, down.sh and registries.sh: processes by pid file in $root, judged by /proc.

# A zombie is dead, though kill -0 still finds it.
running() { grep -qE '^State:\s+[^ZX]' "/proc/$1/status" 2>/dev/null; }

alive() { [ -f "$root/$1.pid" ] && running "$(cat "$root/$1.pid")"; }

# start NAME COMMAND…: detached, output to log/NAME.log
start() {
  local name=$1; shift
  setsid nohup "$@" > "$root/log/$name.log" 2>&1 < /dev/null 9>&- &
  echo $! > "$root/$name.pid"
}

# need NAME: ends the script when it died, with the end of its log
need() {
  alive "$1" && return
  { echo "$1 died:"; tail -20 "$root/log/$1.log"; } >&2
  exit 1
}

# stop NAME SIGNAL PATTERN: ends it if its command line still fits, which a reused pid's would not
stop() {
  local pid
  pid=$(cat "$root/$1.pid" 2>/dev/null) || return 0
  if grep -qaE "$3" "/proc/$pid/cmdline" 2>/dev/null; then
    kill "-$2" "$pid" 2>/dev/null
    for _ in $(seq 50); do running "$pid" || break; sleep 0.1; done
    running "$pid" && kill -9 "$pid" 2>/dev/null
  fi
  rm -f "$root/$1.pid"
}

# Certificates, elliptic and good for a year, in the current folder
key() { openssl ecparam -genkey -name prime256v1 -noout -out "$1" 2>/dev/null; }

authority() { # NAME FILE
  key "$2.key"
  openssl req -x509 -new -key "$2.key" -subj "/CN=$1" -days 365 -out "$2.crt" 2>/dev/null
}

certificate() { # FILE SUBJECT USAGE [ALTERNATIVE-NAMES], signed by ca
  key "$1.key"
  printf 'extendedKeyUsage=%s\n%s\n' "$3" "${4:+subjectAltName=$4}" > "$1.ext"
  openssl req -new -key "$1.key" -subj "$2" 2>/dev/null |
    openssl x509 -req -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 8)" -days 365 \
      -extfile "$1.ext" -out "$1.crt" 2>/dev/null
}
