# Configuration of the V-IPU controller: the long options of vipu-server, one key="value" a line. The command line wins.
storage="/var/lib/vipu/vipu-server.db"
log-file="/var/log/vipu/vipu-server.log"

# Both APIs serve this host only. Other hosts are served with --secure or --tls; see vipu-server(8).
user-api-listen="127.0.0.1:8090"
admin-api-listen="127.0.0.1:8090"
