#!/bin/sh
# Makes what compose.yaml needs in ./secrets, or in the folder given: an authority, certificates for both services, Redis
# passwords and the users file with their hashes. For one machine; with certificates of your own put yours there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/secrets}
umask 077
mkdir "$folder" # fails if it is there: nothing is written over
cd "$folder"

certificate() { # name, host names
  openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
  openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
  printf '%s\n' "subjectAltName=$2" 'keyUsage=critical,digitalSignature' 'extendedKeyUsage=serverAuth,clientAuth' >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 397 -extfile "$1.ext" -out "$1.pem" 2>/dev/null
  rm "$1.csr" "$1.ext"
}

openssl ecparam -name prime256v1 -genkey -noout -out ca.key
openssl req -x509 -new -key ca.key -subj "/CN=veilset compose authority" -days 1825 -out ca.pem \
  -addext 'keyUsage=critical,keyCertSign,cRLSign'
certificate veilset 'DNS:veilset,DNS:localhost,IP:127.0.0.1'
certificate valkey 'DNS:valkey,DNS:localhost,IP:127.0.0.1'

hash() { printf %s "$1" | openssl dgst -sha256 -r | cut -d' ' -f1; }
server=$(openssl rand -hex 32)
reader=$(openssl rand -hex 32)
sed -e "/^user veilset-server /s/#0\{64\}/#$(hash "$server")/" -e "/^user veilset-reader /s/#0\{64\}/#$(hash "$reader")/" \
  "$here/../redis/users.acl" >users.acl
printf '%s\n' "rediss://veilset-server:$server@valkey:6379/0?ssl_ca_certs=/run/secrets/ca.pem" >redis-url
printf '%s\n' "$reader" >reader-password

# Compose mounts these files with the owner and mode that they have; the containers run as other users.
chmod 0644 ./*.pem ./*.key users.acl redis-url
chmod 0600 ca.key reader-password
chmod 0700 .
echo "made $folder; keep ca.key elsewhere"
