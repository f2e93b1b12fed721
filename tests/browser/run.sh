#!/bin/sh
# Opens a rendered report in headless Chromium and checks it: run.sh REPORT.html [SCREENSHOT_FOLDER]
# Needs node and chromium (CHROMIUM names another binary). Ends with a line "N passed, N failed".
set -eu
if [ $# -lt 1 ]; then
    echo "usage: $0 REPORT.html [SCREENSHOT_FOLDER]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -f "$here/node_modules/playwright-core/package.json" ]; then
    npm ci --prefix "$here" --no-audit --no-fund --silent
fi
exec node "$here/report.mjs" "$@"
