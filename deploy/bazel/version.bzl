# Version of package and manual pages. device/base/version.h has the programs', and deploy/deb_test compares.
VERSION = "1.18.0"
