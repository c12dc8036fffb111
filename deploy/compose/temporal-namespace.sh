#!/bin/sh
# Creates the namespace of Cuebook, unless it exists. The CLI reads its address and name from the environment.
set -eu
temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 72h
