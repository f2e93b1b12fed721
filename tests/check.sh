# What the shell tests share; they source it and set `work`, a folder of their own.
# shellcheck shell=bash disable=SC2034

passed=0 failed=0 skipped=0 server='' log=$work/serve.log

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      ${mode:+$mode: }$name"
    else
        failed=$((failed + 1))
        echo "FAILED  ${mode:+$mode: }$name"
        tail -n 20 "$work/out" "$log" 2>/dev/null | sed 's/^/        /'
    fi
}

skip() { # NAME WHY
    skipped=$((skipped + 1))
    echo "skipped ${mode:+$mode: }$1: $2"
}

# Starts a server, whose output is in $log, and waits until it says so.
begin() { # WORDS COMMAND...
    local words=$1
    shift
    : >"$log" # what an earlier server said is not to be taken for this one's
    "$@" >"$log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        grep -q "$words" "$log" && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    cat "$log"
    return 1
}
