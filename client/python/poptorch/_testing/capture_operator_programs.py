"""Programs of the capture's tests that go through PyTorch's operators."""

import torch
from capture_programs import program, total
from torch.nn import functional as F

_ORDER = torch.tensor([0, 2, 1, 3])


@program()
def factories(m, x):
    n = x.shape[0]
    y = x @ m.w + torch.zeros(n, 4) + torch.arange(4).float() + torch.ones_like(x)
    y = y + torch.full((4,), 2.0) + torch.eye(4) + torch.linspace(0, 1, 4) + x.new_zeros(4)
    y = y + x.new_tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor([0.5, 1.5, 2.5, 3.5])
    y = y + torch.tensor(3.0) + torch.tensor([4.0] * 4, device=x.device)
    y = y + torch.as_tensor([1.0] * 4, device=x.device) + torch.logspace(0, 1, 4)
    y = y + x.new_full((4,), 0.5) + x.new_ones(4) + torch.full_like(x, 3.0)
    y = y + torch.tensor(x) + torch.as_tensor(x) + torch.tril_indices(4, 4)[0, :4]
    return y, total(y * y)


@program()
def factories_of_numbers(m, x):
    """Factories whose type follows from the numbers that they get."""
    y = torch.where(torch.full((4,), True), x @ m.w, x) + (torch.full((4,), fill_value=7) & 5)
    y = y + torch.arange(4.0) + torch.arange(1.0, 5.0, device=x.device) + torch.full((4,), 0.5)
    y = y + torch.arange(end=4.0).mean() + torch.arange(0.5, 4).mean() + (torch.arange(4) & 2)
    return y, total(y * y)


@program()
def random_sources(m, x):
    y = x @ m.w * (torch.rand(4, 4) > 0.5) + torch.randn(4) + torch.randn_like(x)
    y = y + torch.randint(0, 5, (4,)) + torch.normal(0.0, 1.0, (4,)) + torch.rand_like(x)
    y = y + torch.bernoulli(torch.full((4,), 0.5)) + torch.empty(4).uniform_(0, 1)
    y = y + torch.empty(4).normal_() + torch.empty(4).exponential_() + torch.randperm(4)
    y = y + torch.normal(x, 1.0) + F.dropout(x, 0.25) + torch.randint_like(x, 3)
    return y, total(y)


@program()
def randomised_slope(m, x):
    y = F.rrelu(x @ m.w, 0.1, 0.3, training=False) + F.rrelu(x @ m.w, 0.2, 0.2, training=True)
    return y, total(y * y)


@program()
def sampled(m, x):
    normal = torch.distributions.Normal(x @ m.w, torch.ones(4, 4, device=x.device))
    y = normal.rsample()
    return y, total(-normal.log_prob(y.detach()))


@program()
def types(m, x):
    y = (x @ m.w).to(torch.float16).to(torch.float32)
    i = y.long() % 3
    z = y.double() * i
    loss = z.float() + y.type(torch.float32) + i.type_as(y) + y.bool() + y.int() + y.to(x)
    return z.float(), total(loss)


@program()
def devices(m, x):
    y = (x @ m.w).to(x.device) + torch.zeros(4, device=x.device) + torch.ones(4, device=m.w.device)
    return y.to(x.device, torch.float32), total(y.to(device=x.device))


@program()
def gathered(m, x):
    y = torch.cat([x @ m.w, x, torch.stack([x[0]] * 4)], dim=1)
    y = y + torch.hstack((x, x, x)) + torch.vstack((x[:2], x[2:])).repeat(1, 3)
    return y, total(y * y)


@program()
def einsum(m, x):
    y = torch.einsum("bi,ij,bj->b", x, m.w, x) + torch.einsum("bij->b", x[:, :, None] * m.w)
    return y, total(y)


@program()
def attention(m, x):
    q = (x @ m.w).view(1, 2, 2, 4)
    y = F._scaled_dot_product_attention(q, q, q, None, 0.0, False, True)[0]
    return y, total(y * y)


@program()
def where(m, x):
    y = x @ m.w
    y = torch.where(y > 0, y, torch.tensor(-0.1))
    y = torch.where(x > 0, y, x) + torch.where(x > 1, 0.5, x)
    return y, total(y * y)


@program(torch.randn(4, 4), _ORDER)
def indexing(m, x, i):
    y = x @ m.w
    z = y[i] + y[i, i][:, None] + y[:, i] + y.index_select(1, i)
    z = z + y.gather(1, i[None].expand(4, 4)) + y[[3, 1, 0, 2]] + y[:, [0, 1, 2, 3]]
    z = z + y[..., None, 0] + y[[0, 1], [1, 2]].sum() + y[None, 2] + y.take_along_dim(i[:, None], 1)
    return z, total(z * z)


@program(torch.randn(4, 4), _ORDER)
def embedded(m, x, i):
    z = F.embedding(i, m.w) + F.one_hot(i, 4) + x.repeat_interleave(2, 1)[:, ::2]
    z = z + torch.repeat_interleave(m.w, 2)[:4]
    return z, total(z * z)


@program()
def ordered(m, x):
    y = x @ m.w
    values, places = y.sort(dim=1, descending=True)
    top = y.topk(2, dim=0)[0]
    z = values * x + top.sum() + y.argmax(1) + y.max(dim=1)[0] + places.sum() + y.argsort(1)
    return values, total(z)


@program(parameters={"w": (4, 4), "v": (4, 4), "g": (4, 1)})
def normalisations(m, x):
    y = F.layer_norm(x @ m.w, (4,))
    y = F.group_norm(y.view(2, 4, 2), 2).view(4, 4)
    y = F.normalize(y, dim=1) + F.instance_norm(y.view(2, 2, 4)).view(4, 4)
    y = y + torch._weight_norm(m.v, m.g, 0) + F.local_response_norm(y.view(2, 2, 4), 2).view(4, 4)
    return y, total(y * y)


@program()
def losses(m, x):
    y, sign, third = x @ m.w, torch.sign(x), torch.softmax(x, 1)
    loss = F.mse_loss(y, x) + F.l1_loss(y, x) + F.smooth_l1_loss(y, x) + F.huber_loss(y, x)
    loss = loss + F.binary_cross_entropy_with_logits(y, (x > 0).float())
    loss = loss + F.binary_cross_entropy(torch.sigmoid(y), (x > 0).float())
    loss = loss + F.kl_div(F.log_softmax(y, 1), third, reduction="batchmean")
    loss = loss + F.nll_loss(F.log_softmax(y, 1), torch.arange(4))
    loss = loss + F.cosine_embedding_loss(y, x, torch.ones(4))
    loss = loss + F.margin_ranking_loss(y[:, 0], y[:, 1], torch.ones(4))
    loss = loss + F.poisson_nll_loss(y, x.abs()) + F.hinge_embedding_loss(y, sign)
    loss = loss + F.triplet_margin_loss(y, x, x + 1) + F.soft_margin_loss(y, sign)
    loss = loss + F.cross_entropy(y, third, label_smoothing=0.1)
    return y, loss


@program()
def connectionist(m, x):
    scores = F.log_softmax((x @ m.w).view(4, 1, 4), 2)
    return scores, F.ctc_loss(scores, torch.tensor([[1, 2]]), (4,), (2,))


@program(torch.randn(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3)))
def segmented(m, x, labels):
    y = torch.einsum("bchw,cd->bdhw", x, m.w).contiguous()
    loss = F.cross_entropy(y, labels, ignore_index=2) + F.nll_loss(y, labels, reduction="sum")
    loss = loss + F.cross_entropy(y, labels, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    loss = loss + F.cross_entropy(y, labels, label_smoothing=0.2, ignore_index=1)
    weights = torch.tensor([1.0, 0.5, 2.0, 1.5])
    loss = loss + F.cross_entropy(y, labels, weights, label_smoothing=0.2, ignore_index=1)
    each = F.cross_entropy(y, labels, reduction="none", label_smoothing=0.1)
    return y, loss + each.mean() + F.multi_margin_loss(y[0, :, 0].mT.contiguous(), labels[0, 0])


@program(torch.randn(1, 2, 5, 6, 7))
def pooled_volumes(m, x):
    y = x * m.w[0, 0]
    z = F.max_pool3d(y, 2).sum() + F.max_pool3d(y, 3, 2, 1, ceil_mode=True).sum()
    z = z + F.avg_pool3d(y, (2, 3, 2)).sum() + F.max_pool3d(y, (1, 2, 3), (1, 2, 2)).mean()
    return y, z + F.adaptive_avg_pool3d(y, 2).sum() + F.adaptive_max_pool3d(y, 1).sum()


@program(torch.randn(4, 4), torch.tensor([3, -1]))
def indices_of_one_number(m, x, i):
    y = x @ m.w
    z = y[i[0]] + y[:, i[1]] + y[1, i[0]] + y[..., i[0], 1:2] + torch.take(y, i + 1).sum()
    return z, total(z * z)


@program(parameters={"w": (4, 4), "g": (1,)})
def resized(m, x):
    y = F.pad((x @ m.w).view(1, 1, 4, 4), (1, 1, 1, 1), mode="reflect")
    z = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
    z = z + F.interpolate(z, size=(12, 12), mode="bilinear", antialias=True)
    y = z + F.interpolate(y, size=(12, 12), mode="nearest")
    y = F.avg_pool2d(F.pixel_shuffle(y.repeat(1, 4, 1, 1), 2), 4)
    y = F.adaptive_max_pool2d(F.interpolate(y, size=(7, 7), mode="bicubic", antialias=True), 3)
    y = F.pad(y, (1, 0, 0, 1), value=2.0) + F.pad(y, (1, 0, 1, 0), mode="replicate")
    return y, total(y * m.g)


@program(torch.randn(1, 4, 2, 3))
def shuffled_channels(m, x):
    # PyTorch has no gradient of the shuffle.
    y = F.channel_shuffle(x, 2) + torch.native_channel_shuffle(x, 4) * m.w[0, 0]
    return y, total(y)


@program(torch.randn(1, 2, 3, 3, 3), parameters={"w": (4, 4)})
def sampled_volumes(m, x):
    grid = F.affine_grid(m.w[None, :3], (1, 2, 2, 3, 4), align_corners=False)
    y = F.grid_sample(x, grid, align_corners=False)
    z = F.grid_sample(x[:, :, 0], grid[:, 0, :, :, :2], mode="nearest", align_corners=True)
    return y, total(y * z.mean())


@program(parameters={"w": (4, 4), "g": (1,)})
def activations(m, x):
    y = x @ m.w
    z = F.elu(y) + F.celu(y) + F.selu(y) + F.mish(y) + F.softplus(y) + F.softsign(y)
    z = z + F.hardtanh(y) + F.prelu(y, m.g) + F.glu(y.repeat(1, 2), 1) + F.tanhshrink(y)
    z = z + F.softshrink(y) + F.hardshrink(y) + F.relu6(y) + F.silu(y) + F.logsigmoid(y)
    z = z + F.gelu(y, approximate="tanh") + F.gelu(y) + F.threshold(y, 0.1, 2.0) + y.softmax(0)
    return z, total(z)


@program()
def reductions(m, x):
    y = x @ m.w
    z = y.std(1) + y.var(1) + y.logsumexp(1) + y.prod(1) + y.norm(dim=1) + y.median(1)[0]
    z = z + y.amax(1) + y.cumsum(1)[:, 0] + torch.linalg.vector_norm(y, dim=1) + y.norm()
    z = z + y.kthvalue(2)[0] + torch.cdist(y, x)[0] + torch.cumprod(y, 1)[:, 1] + y.sum((0, 1))
    z = z + y.mean() + torch.count_nonzero(y, 1) + y.all(1) + y.any(1) + y.median()
    z = z + torch.var_mean(y, 1)[1] + y.amin(0) + torch.trace(y) + y.nansum(1) + y.cummax(1)[0][0]
    return z, total(z)


@program()
def powers(m, x):
    y = (x @ m.w).abs() + 0.5
    z = y.exp().log() + y.sqrt() + y.rsqrt() + y.pow(2) + y**0.5 + 2**y + y.square()
    z = z + y.log2() + y.log10() + y.log1p() + y.expm1() + y.reciprocal() + y.logaddexp(x)
    z = z + torch.xlogy(y, y) + torch.hypot(y, x) + y.erf() + y.erfc() + y.sigmoid()
    z = z + torch.atan2(y, x) + y.sin() + y.tan() + y.sinh() + y.asinh() + y.lerp(x, 0.3)
    return z, total(z)


@program()
def rounding(m, x):
    y = (x @ m.w).abs() + 0.5
    z = y.floor() + y.frac() + y.fmod(0.7) + y.remainder(0.7) + y.trunc() + y.sign() + y.round()
    z = z + torch.floor_divide(y.detach(), 2) + torch.maximum(y, x) + y.clamp(0.1, 2) - 2 + (1 - y)
    z = z + torch.nan_to_num(y) + torch.addcmul(y, x, x) + torch.addcdiv(y, x, y) + (y > 1) * x
    return z, total(z)


@program()
def matrices(m, x):
    y = x @ m.w
    z = torch.triu(y) + torch.tril(y) + y.flip(0) + y.roll(1, 0) + torch.outer(y[0], y[1])
    z = z + torch.kron(y[:2, :2], x[:2, :2]) + torch.cross(y[:, :3], x[:, :3], dim=1).sum()
    z = z + y.diag() + torch.diag_embed(y[0]) + torch.baddbmm(y[None], x[None], x[None])[0]
    z = z + torch.addmv(y[0], y, x[0]) + torch.tensordot(y, x, 1) + y.diagonal() + y.mT
    z = z + torch.meshgrid(y[0], y[1], indexing="ij")[0] + y.unfold(1, 2, 2).sum(-1).repeat(1, 2)
    z = z + y.movedim(0, 1) + F.unfold(y[None, None], 2).sum() + y.rot90() + y.swapaxes(0, 1)
    return z, total(z)


@program()
def buckets(m, x):
    y = x @ m.w
    limits = torch.tensor([-0.5, 0.5]).to(y.device)
    z = y * torch.bucketize(y, limits) + F.one_hot(y.long() % 4, 4).sum(-1)
    return z, total(z)


@program()
def bilinear(m, x):
    y = F.bilinear(x, x, m.w.view(1, 4, 4)) + F.cosine_similarity(x, x @ m.w)[:, None]
    y = y + F.pairwise_distance(x, x @ m.w)[:, None] + torch.linalg.norm(x @ m.w)
    return y, total(y)


@program()
def convolutions(m, x):
    y = (x @ m.w).view(1, 2, 8)
    y = F.conv1d(y, m.w[:3].reshape(2, 2, 3), padding=1) + F.avg_pool1d(y, 3, 1, 1)
    z = F.conv_transpose1d(y, m.w.view(2, 2, 4), stride=2) + F.max_pool1d(y, 2).sum()
    z3 = F.conv3d(y.view(1, 1, 2, 2, 4), m.w[:2].view(1, 1, 2, 2, 2))
    return z, total(z.sum() + z3 * z3)
