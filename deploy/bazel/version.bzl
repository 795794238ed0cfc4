# Of package and manual pages; the programs have it from device/base/version.h, and deploy/deb_test compares.
VERSION = "1.18.0"
