"""Names on the device: no parameter is taken for a variable of the device's own."""

import unittest

from poptorch._executor import device_names

_NAMES = (
    "fc.weight",
    "optimizer.weight",
    "optimizer/fc.weight",
    "optimizer/step/ipu0",
    "Accl___fc.weight",
    "Accl1___fc.weight",
    "AcclMax___fc.weight",
    "random/seed/ipu0",
    "lossScaleUpdateFactor/fc.weight",
    "replica/group/fc.weight",
    "model/fc.weight",
    "model/Accl___fc.weight",
    "model.weight",
)


class DeviceNamesTest(unittest.TestCase):
    def test_names_are_not_those_of_the_device(self):
        for name in _NAMES:
            on_device = device_names.on_device(name)
            for own in ("Accl", "optimizer/", "random/", "lossScale", "replica/"):
                self.assertFalse(on_device.startswith(own), on_device)

    def test_names_differ(self):
        self.assertEqual(len({device_names.on_device(name) for name in _NAMES}), len(_NAMES))
        state = {device_names.state_on_device("Accl___" + name) for name in _NAMES}
        self.assertEqual(len(state), len(_NAMES))
        self.assertFalse(state & {device_names.on_device(name) for name in _NAMES})

    def test_most_names_stay(self):
        for name in ("fc.weight", "optimizer.weight", "model.weight"):
            self.assertEqual(device_names.on_device(name), name)

    def test_state_has_its_name_back(self):
        for name in _NAMES:
            state = "Accl2___" + name
            variable = device_names.state_on_device(state)
            self.assertEqual(variable, "Accl2___" + device_names.on_device(name))
            self.assertEqual(device_names.of_state(variable), state)
        self.assertEqual(device_names.of_state("optimizer/step/ipu0"), "optimizer/step/ipu0")

    def test_variables_of_the_model_are_not_state(self):
        variables = {device_names.on_device(name): (6, [], 4) for name in _NAMES}
        variables["Accl___" + device_names.on_device("Accl___fc.weight")] = (6, [2], 8)
        found = device_names.state_variables(variables)
        self.assertEqual(found, {"Accl___Accl___fc.weight": (6, [2], 8)})


if __name__ == "__main__":
    unittest.main()
