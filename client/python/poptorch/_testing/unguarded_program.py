"""A program that starts a loading process although it is not guarded, as users forget it."""

from poptorch._data.accessor import AsynchronousDataAccessor

from loader_testing import Numbers

for _ in AsynchronousDataAccessor(Numbers(3)):
    pass
