import pytest
from neurons.stacks import NEURONS, draw_layers


@pytest.fixture(params=NEURONS)
def layers(request):
    return draw_layers(request.param)
