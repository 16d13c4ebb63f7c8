#!/bin/sh
# A job started by hand: in three terminals, in any order,
#     sh examples/three_terminals.sh ps
#     sh examples/three_terminals.sh worker
#     sh examples/three_terminals.sh chief
# On three hosts, write their names instead of 127.0.0.1. docs/jobs.md says more.
set -eu
role=${1:-}
port=${PORT:-29400}
cluster="\"chief\": [\"127.0.0.1:$port\"], \"worker\": [\"127.0.0.1:$((port + 1))\"], \"ps\": [\"127.0.0.1:$((port + 2))\"]"
export TF_CONFIG="{\"cluster\": {$cluster}, \"task\": {\"type\": \"$role\", \"index\": 0}}"
case $role in
  ps | worker) exec python -m tf_rdmabatch serve ;;
  chief) exec python examples/keras_digits.py --epochs 2 ;;
  *)
    echo "usage: sh examples/three_terminals.sh ps|worker|chief" >&2
    exit 2
    ;;
esac
