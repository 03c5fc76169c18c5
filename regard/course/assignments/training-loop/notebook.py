# %% [markdown]
# # The training loop
#
# A model is only as good as the loop that trains it, and a loop can be wrong in ways that no error message shows: the
# loss falls, only less than it should. Such mistakes cost weeks of computing. In this notebook you write the four parts
# that the paper's results depend on, and then the loop that uses them:
#
# 1. the **learning rate**, which rises and then falls,
# 2. **label smoothing**, which keeps the model from becoming too certain,
# 3. **gradient clipping**, which limits the damage of a bad batch,
# 4. **gradient accumulation**, which makes batches larger than the memory.
#
# Save the notebook and run `regard check` with its file name in a terminal whenever you like: what is written is
# checked.

# %% [markdown]
# ## The learning rate
#
# At the beginning the weights are random, and so are the gradients. Large steps would carry the weights to a place that
# they never leave. Later, large steps are what makes training fast, and at the end they would keep the weights from
# settling. So the rate rises linearly for some updates (the warm-up) and then falls with the square root of the step:
#
# $$\text{rate} = \text{width}^{-1/2} \cdot \min\left(\text{step}^{-1/2},\; \text{step} \cdot
# \text{warmup}^{-3/2}\right)$$

# %% starter="learning_rate"

# %% [markdown]
# Your curves should have a sharp peak where the warm-up ends. A wider model gets a smaller rate.

# %%
import matplotlib.pyplot as plt
import torch

steps = range(1, 20_001, 50)
for width, warmup in [(512, 4000), (512, 8000), (1024, 4000)]:
    plt.plot(steps, [learning_rate(step, width, warmup) for step in steps], label=f"width {width}, warmup {warmup}")
plt.xlabel("step")
plt.ylabel("learning rate")
plt.legend()
plt.show()

# %% [markdown]
# ## Label smoothing
#
# With plain cross-entropy the model should give the right token the probability 1. It can never reach that, so it keeps
# making its logits larger, and in the end it is certain even where it is wrong. With label smoothing it should give the
# target $1 - \varepsilon$, and share the rest evenly among all tokens of the vocabulary:

# %%
wanted = torch.full((8,), 0.1 / 8)
wanted[3] += 1 - 0.1
plt.figure(figsize=(6, 2.2))
plt.bar(range(8), wanted.tolist())
plt.xlabel("token")
plt.ylabel("wanted probability")
plt.show()

# %% [markdown]
# The loss of a token is the cross-entropy between the wanted probabilities $w$ and the model's probabilities $p$:
#
# $$-\sum_{t} w_t \log p_t$$
#
# Split the sum: one part for the target, one part that is the same for all tokens. Padding does not count at all. Your
# function returns the **sum** of the losses and the number of tokens. You will see soon why not the mean.

# %% starter="smoothed_loss"

# %% [markdown]
# How much does a model lose when it gives the target the probability $p$ and shares the rest evenly? Without smoothing,
# more certainty is always better. With smoothing, the lowest loss is where the model is as certain as it should be, and
# beyond that the loss rises again.

# %%
certainty = torch.linspace(0.3, 0.9999, 200)
others = ((1 - certainty) / 7)[:, None].expand(-1, 7)
logits = torch.cat([certainty[:, None], others], dim=1).log()[:, None]  # [200, 1, 8]
for smoothing in (0.0, 0.1, 0.3):
    losses = [smoothed_loss(row[None], torch.zeros(1, 1, dtype=torch.long), smoothing, pad=7)[0] for row in logits]
    plt.plot(certainty.tolist(), [float(loss) for loss in losses], label=f"ε = {smoothing}")
plt.xlabel("probability of the target")
plt.ylabel("loss")
plt.legend()
plt.show()

# %% [markdown]
# ## Gradient clipping
#
# Now and then a batch has a gradient that is far larger than usual, and a single step destroys what thousands of steps
# have learned. The remedy: if the norm of the gradient is larger than a limit, make the gradient shorter, but keep its
# direction. *The* gradient is that of all parameters together, as if they were one long vector.

# %% starter="clip_gradients"

# %% [markdown]
# Cutting off single numbers would change the direction of the gradient. Yours should lie on the line to the original
# one, with a length of 1.

# %%
weight = torch.nn.Parameter(torch.zeros(2))
weight.grad = torch.tensor([4.0, 1.0])
norm = clip_gradients([weight], max_norm=1.0)
plt.figure(figsize=(6, 2.4))
for label, vector in [("before", (4.0, 1.0)), ("cut off", (1.0, 1.0)), ("yours", tuple(weight.grad.tolist()))]:
    plt.annotate("", vector, (0, 0), arrowprops={"arrowstyle": "->"})
    plt.annotate(label, vector)
plt.xlim(-0.2, 4.8)
plt.ylim(-0.2, 1.4)
plt.title(f"norm before: {float(norm):.2f}, after: {float(weight.grad.norm()):.2f}")
plt.show()

# %% [markdown]
# ## The loop, with accumulation
#
# The paper trains with 25,000 tokens per update. If only 5,000 fit into memory, compute the gradients of five batches,
# let `backward` add them up, and update the weights once.
#
# The result must be exactly that of one large batch. Here is the trap: batches have different numbers of tokens. If you
# take the mean of each batch and then the mean of the means, a token in a short batch counts more than one in a long
# batch. So add up **sums**, and divide by the number of tokens of all batches of the update.

# %% starter="train"

# %% [markdown]
# Does it learn? A tiny model should learn to count: 1, 2, 3, ….

# %%
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(12, 16), torch.nn.Linear(16, 12))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
first = torch.randint(1, 8, (400, 8, 1))
rows = first + torch.arange(5)  # [400, 8, 5]: 400 batches of 8 rows
batches = [(row[:, :-1], row[:, 1:]) for row in rows]
history = train(model, optimizer, batches, 4, width=1, warmup=20, max_norm=1.0, smoothing=0.1, pad=0)
plt.plot(history)
plt.xlabel("update")
plt.ylabel("loss per token")
plt.show()

# %% [markdown]
# And is accumulation exact? One update with four small batches should give the same loss, and the same weights, as one
# update with a single large batch.

# %%
results = []
for accumulate, chosen in [
    (4, batches[:4]),
    (1, [tuple(torch.cat(parts) for parts in zip(*batches[:4], strict=True))]),
]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(12, 16), torch.nn.Linear(16, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    train(model, optimizer, chosen, accumulate, width=1, warmup=1, max_norm=1.0, smoothing=0.1, pad=0)
    results.append(model[1].weight.detach())
torch.allclose(results[0], results[1], atol=1e-6)

# %% [markdown]
# ## Questions to think about
#
# 1. The last batches of the example all have the same number of tokens. Which mistake would therefore stay unnoticed in
#    the last cell?
# 2. With label smoothing, can the loss ever reach 0? What is the lowest loss for $\varepsilon = 0.1$ and 12 tokens?
# 3. Adam divides each gradient by its own recent size. Which of the mistakes that you can imagine does that hide?
