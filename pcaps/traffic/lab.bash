# shellcheck shell=bash disable=SC2154 # make-pcaps sets what is not set here
# lab.bash: network namespaces, the programs in them, and the recording of what passes between them. Sourced by
# scripts/make-pcaps, which sets $scripts, $traffic, $work (a temporary directory) and $output.

prefix=flowpeel$$
namespaces=()
recorder=

die() {
    echo "make-pcaps: $*" >&2
    exit 1
}

# ---- namespaces and the programs in them -----------------------------------------------------------------------------

# Every process of a namespace of ours was started here, or by a program that was.
remove_namespaces() {
    local name pid
    for name in "${namespaces[@]}"; do
        for pid in $(ip netns pids "$prefix-$name" 2>/dev/null); do
            kill -KILL "$pid" 2>/dev/null || true
        done
        ip netns del "$prefix-$name" || true
    done
    namespaces=()
    recorder=
}

clean_up() {
    local status=$?
    trap - EXIT
    remove_namespaces || true
    if [ "$status" -ne 0 ]; then
        tail -n 5 "$work"/*.log >&2 2>/dev/null || true
    fi
    rm -rf "$work"
    exit "$status"
}

on() {
    local name=$1
    shift
    ip netns exec "$prefix-$name" "$@"
}

# start NAMESPACE LOG COMMAND...: in the background; its process id is in $started.
start() {
    local name=$1 log=$work/$2.log
    shift 2
    ip netns exec "$prefix-$name" "$@" >"$log" 2>&1 </dev/null &
    started=$!
    disown "$started"
}

# until_true WHAT COMMAND...: at most 10 s.
until_true() {
    local what=$1 tries
    shift
    for ((tries = 0; tries < 100; tries++)); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    die "waited in vain for $what"
}

listens() { [ -n "$(on "$1" ss -Htln "sport = :$2")" ]; }
says() { grep -q "$2" "$work/$1.log"; }

# talk NAMESPACE LOG ARGUMENTS...: conversations of which some are left open.
talk() {
    local name=$1 log=$2
    shift 2
    start "$name" "$log" "$traffic/talk" "$@"
    until_true "$log" says "$log" '^ready'
}

# serve NAMESPACE PORT...
serve() {
    local name=$1
    shift
    start "$name" "serve-$name" "$traffic/talk" serve "$@"
    until_true "the server in $name" listens "$name" "${!#}"
}

add_namespaces() {
    local name
    for name in "$@"; do
        namespaces+=("$name")
        ip netns add "$prefix-$name"
        # shellcheck disable=SC2016 # the shell in the namespace expands it
        on "$name" bash -c 'for c in all default; do echo 0 >/proc/sys/net/ipv6/conf/$c/accept_dad; done
            echo 0 >/proc/sys/net/ipv4/ip_early_demux; ip link set lo up
            ip rule add pref 1000 lookup local; ip rule del pref 0'
    done
}

# join NAMESPACE INTERFACE ADDRESS NAMESPACE INTERFACE ADDRESS [MTU]: a veth between the two; `-` for no address.
join() {
    local mtu=${7:-1500}
    ip -n "$prefix-$1" link add "$2" mtu "$mtu" type veth peer name "$5" mtu "$mtu" netns "$prefix-$4"
    bring_up "$1" "$2" "$3"
    bring_up "$4" "$5" "$6"
}

bring_up() {
    on "$1" "$traffic/offload" "$2"
    [ "$3" = - ] || ip -n "$prefix-$1" address add "$3" dev "$2"
    ip -n "$prefix-$1" link set "$2" up
}

# A filter that drops without a word and needs neither nftables nor iptables: a rule sends packets into a black hole.
drop() { ip -n "$prefix-$1" rule add pref "$2" ipproto tcp "${@:3}" blackhole; }
let_pass() { ip -n "$prefix-$1" rule del pref "$2"; }

# ---- recording -------------------------------------------------------------------------------------------------------

# record NAMESPACE INTERFACE [TCPDUMP ARGUMENTS]
record() {
    local name=$1 interface=$2
    shift 2
    : >"$work/known"
    start "$name" tcpdump tcpdump -Z root -U --immediate-mode -n -i "$interface" -w "$work/raw.pcap" "$@"
    recorder=$started
    until_true tcpdump says tcpdump 'listening on'
}

# The script's own knowledge of a connection of which no kernel knows: STATE ENDPOINT ENDPOINT [VLAN].
open_by_hand() { echo "$*" >>"$work/known"; }

# The TCP sockets of a namespace; one that has been closed by one side only counts as established.
kernel_knows() {
    on "$1" ss -Htan | awk -v vlan="${2:-}" '
        { sub(/%[a-z0-9-]+/, "", $4); sub(/%[a-z0-9-]+/, "", $5); gsub(/::ffff:/, "", $0) }
        $4 ~ /^\[[0-9.]+\]:/ { gsub(/[][]/, "", $4); gsub(/[][]/, "", $5) }
        /^(ESTAB|FIN-WAIT-[12]|CLOSE-WAIT) / { print "established", $4, $5, vlan }
        /^SYN-SENT / { print "syn_sent", $4, $5, vlan }
        /^SYN-RECV / { print "syn_recv", $4, $5, vlan }' >>"$work/known"
}

# keep FILE NAMESPACE[=VLAN]...: end the recording, write it as FILE, and its expected list beside it.
keep() {
    local file=$1 name=${1%%.*} place packed=$work/packed
    shift
    sleep 1
    for place in "$@"; do
        kernel_knows "${place%%=*}" "$([ "$place" = "${place#*=}" ] || echo "${place#*=}")"
    done
    kill -INT "$recorder"
    until_true "tcpdump's end" says tcpdump 'packets captured'
    until_true "tcpdump's end" bash -c "! kill -0 $recorder"
    "$scripts/expected-list" "$work/raw.pcap" "$file" "$work/known" >"$work/expected"
    case $file in
    *.gz) gzip -9 -n -c "$work/raw.pcap" >"$packed" ;;
    *.zst) zstd -q -19 -c "$work/raw.pcap" >"$packed" ;;
    *.pcapng) editcap -F pcapng "$work/raw.pcap" "$packed" ;;
    *) cp "$work/raw.pcap" "$packed" ;;
    esac
    install -m 644 "$packed" "$output/$file"
    install -m 644 "$work/expected" "$output/$name.expected.json"
    chown "${SUDO_UID:-0}:${SUDO_GID:-0}" "$output/$file" "$output/$name.expected.json"
    echo "$file: $(stat -c %s "$output/$file") bytes, $(grep -c '"client"' "$work/expected") open at the end"
}
