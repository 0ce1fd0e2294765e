#!/usr/bin/env bash
# An office on this machine with bundled data, a researcher and a steward: make office-demo.
#   demo.sh PYTHON [FOLDER [PORT]]
set -eu
PYTHON=${1:-python3} FOLDER=${2:-$(mktemp -d)} PORT=${3:-8800}
HERE=$(cd "$(dirname "$0")" && pwd)
office() { "$PYTHON" -m dpeffects office "$@"; }

mkdir -p "$FOLDER"
"$PYTHON" -c 'import sys, dpeffects; dpeffects.load_data("birthweight").to_csv(sys.argv[1], index=False)' "$FOLDER/data.csv"
office init "$FOLDER/office" --name birthweight --title "Smoking in pregnancy and birth weight" \
    --data "$FOLDER/data.csv" --codebook "$HERE/demo.toml" --budget 10 --delta 1e-5 \
    --approval above --anchor "$FOLDER/anchor.db"
office account "$FOLDER/office" sue --role steward
office account "$FOLDER/office" anna --project study
TOKEN=$(office token "$FOLDER/office" anna --project study)
cat <<END

Open http://127.0.0.1:$PORT as anna, who asks, or sue, who approves what costs more than epsilon 0.5.
Paste into Python:
  import dpeffects as dpe
  registry = dpe.connect("http://127.0.0.1:$PORT", token="$TOKEN")["birthweight"]
  print(dpe.dp_ate("outcome ~ treatment | mage + married", registry, epsilon=0.5).summary())
Stop with Ctrl-C.
END
exec "$PYTHON" -m dpeffects office serve "$FOLDER/office" --listen "127.0.0.1:$PORT"
