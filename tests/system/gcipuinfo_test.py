"""What callers do with the module gcipuinfo; gcipuinfo_test.cc runs it on a POD with a partition of 4 IPUs."""
import json
import os
import pathlib
import sys

import gcipuinfo

mode = sys.argv[1]
if mode == "active":
    info = gcipuinfo.gcipuinfo()
    info.setUpdateMode(True)
    devices = info.getDevices()
    assert len(devices) == 4, devices
    assert int(devices[0]["clock"][:-3]) == 1330, devices[0]["clock"]
    first = dict(devices[0])
    assert first["id"] == "0" and first["target"] == "Fabric", first
    assert "user process id" not in first, first
    assert gcipuinfo.IpuPower == "ipu power" and gcipuinfo.BoardType == "board type"
    assert info.getNamedAttributeForAll(gcipuinfo.BoardType) == ["M2000"] * 4
    assert info.getNamedAttributeForDevice(3, gcipuinfo.BoardIpuIndex) == "0"
    assert info.getNamedAttributeForDevice(4, gcipuinfo.BoardIpuIndex) == "N/A"
    assert info.getNamedAttributeForDevice(0, "no such label") == "N/A"
    assert info.updateData() is True
    assert [device["id"] for device in json.loads(info.getDevicesAsJSON())] == ["0", "1", "2", "3"]
    assert info.checkHealthOfDevices() == "{}", info.checkHealthOfDevices()
    assert info.getLastAppEventRecord(os.devnull + "-none") == {}
    assert info.getLastAppEventRecord(pathlib.Path(os.devnull + "-none")) == {}
    assert gcipuinfo.gcipuinfo.keySpecificIPUs == "specific ipus"
    assert gcipuinfo.EventSeverity.Fatal.name == "Fatal"
elif mode == "all":
    info = gcipuinfo.gcipuinfo(discoveryMode=gcipuinfo.DiscoverAllPartitionIPUs)
    devices = [dict(device) for device in info.getDevices()]
    assert [device["id"] for device in devices] == ["0", "1", "2", "3", "4"], devices
    assert [device["ipuof partition id"] for device in devices] == ["p4"] * 4 + ["p1"], devices
print("passed")
