"""Programs of the capture's tests that write into tensors and view them."""

import torch
from capture_programs import program, total

@program()
def view_writes(m, x):
    y = (x @ m.w) * 1.5
    y[:, 1] += x[:, 0]
    y[2].mul_(3.0)
    y.view(-1)[4:7] = 0.25
    y.t()[0].add_(y[:, 3])
    y.tanh_()
    return y, total(y * y)


@program()
def views_of_views(m, x):
    y = torch.sin(x @ m.w).clone()
    low, tall = y[1:3], y.transpose(0, 1).unsqueeze(1)
    column = low[:, 2]
    column.zero_()
    tall[3, 0] *= -2.0
    right = y[:, 2:]
    right -= low.sum()
    return y, total((y * x).sum() + column.exp().sum() + tall.mean())


@program()
def permuted_write(m, x):
    y = (x @ m.w).view(2, 2, 4) * 1.0
    y.permute(2, 0, 1)[1].copy_(x[:2, :2])
    y.permute(-1, 0, 1).select(0, 2).fill_(0.5)
    return y, total(y * y)


@program()
def diagonal_write(m, x):
    y = x @ m.w + 0.0
    y.diagonal().mul_(2.0)
    y.diagonal(1).fill_(0.0)
    return y, total(y * y)


@program()
def split_write(m, x):
    y = x @ m.w + 0.0
    with torch.no_grad():  # PyTorch refuses the writes otherwise
        a, b = y.split([1, 3], dim=1)
        b.mul_(2)
        rows = y.unbind(0)
        torch.relu_(a)
        shift = a + rows[2] + b.sum()
    z = y + shift + y.chunk(2)[1].sum()
    return z, total(z * z)


@program()
def strided_write(m, x):
    y = x @ m.w + 0.0
    y.as_strided((2, 2), (4, 2), 1).mul_(3.0)
    z = y.as_strided((2, 3), (1, 4)) + 1.0
    return z, total(y * y + z.sum())


@program()
def stepped_slice(m, x):
    y = x @ m.w + 0.0
    y[::2, 1::2] = x[:2, :2]
    return y, total(y * y)


@program()
def geometry_in_place(m, x):
    y = (x @ m.w).clone()
    other = y[0]
    y.t_()
    y[1] = 2.0
    y.unsqueeze_(0).transpose_(1, 2)
    y.squeeze_(0)
    y[2].add_(1.0)
    return y, total(y * y + other)


@program()
def powers_in_place(m, x):
    y = (x @ m.w).abs() + 1.0
    y.pow_(2)
    y **= 0.75
    z = y.clone().pow_(torch.full((4,), 1.25))
    with torch.no_grad():
        whole = y.clone().floor_divide_(torch.full((4,), 0.37))
    return whole, total(y + z)


@program()
def written_input(m, x):
    x *= 2
    x[1] = 0
    y = x @ m.w
    return y, total(y)


@program(buffers={"count": torch.zeros(()), "mean": torch.zeros(4), "seen": torch.zeros(3).long()})
def buffers(m, x):
    m.count += 1
    m.mean.mul_(0.9).add_(x.mean(0).detach(), alpha=0.1)
    m.seen.index_fill_(0, torch.tensor([1]), 2)
    y = (x - m.mean) @ m.w
    return y, total(y * m.count * m.seen.sum())


@program(parameters={"w": (4, 4), "v": (4, 4)})
def data_write(m, x):
    m.w.data.clamp_(-0.5, 0.5)
    with torch.no_grad():
        m.v[1].mul_(0.5)
    y = torch.tanh(x @ m.w) @ m.v
    y.data[0] = 1.0
    return y, total(y * y)


@program()
def write_without_grad(m, x):
    y = torch.tanh(x @ m.w) * 1.0
    z = y.exp()
    with torch.no_grad():
        y[0] = 5.0
        y.mul_(2.0)
    z = z + y * x
    return z, total(z)


@program(parameters={"w": (4, 4), "v": (4, 4)})
def write_through_detach(m, x):
    y = torch.sigmoid(x @ m.w) + 0.0
    d = y.detach()
    d[0] = 3.0
    d[2] = (x @ m.v)[2]
    return y, total(y.sum() + (d * d).sum())


@program()
def zeros_filled(m, x):
    y = torch.zeros(4, 4)
    for i in range(4):
        y[i, : i + 1] = (x @ m.w)[i, : i + 1]
    out = torch.empty_like(y)
    with torch.no_grad():
        torch.mul(x, 2, out=out)
        torch.add(x, 1, out=torch.empty(0))
    return y, total(y * y + out)


@program()
def mask_write(m, x):
    y = x @ m.w
    y[y < 0] = 0.25
    y = y.masked_fill(x > 1, 3.0)
    y.masked_fill_(x < -1, 0.0)
    return y, total(y * y)


@program(torch.randn(4, 4), torch.tensor([2]))
def mask_write_beside_an_index(m, x, i):
    y = (x @ m.w).clone()
    y[x[0] > 0, i] = 0.25
    y[x[1] > 0, 1] = x[0, 0]
    return y, total(y * y)


@program(torch.randn(4, 4), torch.tensor([0, 2, 1, 3]))
def indexed_writes(m, x, i):
    y = (x @ m.w).clone()
    y[i] = 2.0
    y[i, i] += x[:, 0]
    y[[1, 2]] = x[[0, 3]]
    y.index_put_((i,), x, accumulate=True)
    y.scatter_(1, i[:, None], 1.5)
    y.scatter_add_(1, i[:, None], x[:, :1])
    y.index_add_(0, i, x)
    y.index_fill_(1, i[:1], 0.5)
    return y, total(y * y)
