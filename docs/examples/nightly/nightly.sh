#!/bin/sh
# The night's export becomes the content of a set, and what is new is published:
#     nightly.sh SET FILE COLUMN
# The set was created with --increments 31, and published once by hand. On the first of the month a base release is made and
# charged; on other days an increment, which costs nothing. Run again on the same day it sends nothing twice and charges nothing
# twice. What is done when does not depend on the data, as the time of a release is public.
# Server, credentials and key are in VEILSET_SERVER, VEILSET_CA_FILE, VEILSET_TOKEN_FILE.
set -eu
set_name=$1 file=$2 column=$3
today=${NIGHTLY_DAY:-$(date -u +%F)}

veilset replace "$set_name" "$file" --column "$column" --upload-id "nightly-$today"
case $today in
*-01) veilset publish "$set_name" --request-id "nightly-$today" ;;
*) veilset publish "$set_name" --request-id "nightly-$today" --increment ;;
esac
