// Pretraining a biLM: sizes, and bilm-tf's training settings.
{
  // The sizes of a biLM in the form of bilm-tf's options.json.
  options(cell_size, projection_dim, num_highway, filters=self.paper_filters, num_layers=2):: {
    char_cnn: {
      activation: 'relu',
      embedding: { dim: 16 },
      filters: filters,
      max_characters_per_token: 50,
      n_characters: 261,
      n_highway: num_highway,
    },
    lstm: {
      dim: cell_size,
      projection_dim: projection_dim,
      n_layers: num_layers,
      cell_clip: 3,
      proj_clip: 3,
      use_skip_connections: true,
    },
  },

  paper_filters:: [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],

  // Adam in one pass over weights and gradients: the same numbers but for rounding, in a fifth of the time on a CPU. It
  // has no sparse gradients.
  adam(learning_rate):: { type: 'adam', lr: learning_rate, parameter_groups: [[['.*'], { fused: true }]] },

  // train, heldout: files or globs, separated by commas; vocabulary: as `elmo vocab` writes it.
  experiment(
    train,
    heldout,
    vocabulary,
    options,
    softmax={ type: 'elmo_sampled', num_samples: 8192, sparse_gradients: true },
    state_reset=0.0,  // bilm-tf's; docs/results/bilms.md shows what 0.05 does
    precision='float32',
    rows=128,
    unroll_steps=20,
    heldout_rows=128,
    optimizer={ type: 'adagrad', lr: 0.2, initial_accumulator_value: 1.0 },
    learning_rate_scheduler=null,
    num_epochs=10,
    checkpoint_batches=1250,
  ):: {
    local seed = 13370,
    random_seed: seed,
    numpy_seed: seed,
    pytorch_seed: seed,

    dataset_reader: { type: 'elmo_bilm', vocabulary_file: vocabulary },
    vocabulary: { type: 'elmo_lm_words', vocabulary_file: vocabulary },
    train_data_path: std.split(train, ','),
    validation_data_path: std.split(heldout, ','),
    model: {
      type: 'elmo_bilm',
      options: options,
      softmax: softmax,
      dropout: 0.1,
      state_reset: state_reset,
      precision: precision,
    },
    data_loader: { type: 'elmo_bilm_streams', rows: rows, unroll_steps: unroll_steps, seed: seed },
    validation_data_loader: {
      type: 'elmo_bilm_streams',
      rows: heldout_rows,
      unroll_steps: unroll_steps,
      shuffle: false,
    },
    trainer: {
      optimizer: optimizer,
      learning_rate_scheduler: learning_rate_scheduler,
      grad_norm: 10.0,
      num_epochs: num_epochs,
      validation_metric: '-perplexity',
      // These make --recover resume exactly.
      callbacks: ['elmo_bilm_state'],
      run_confidence_checks: false,  // a recovered run would repeat them, and they take memory
      checkpointer: {
        type: 'elmo_atomic',
        save_every_num_batches: checkpoint_batches,
        keep_most_recent_by_count: 2,
      },
    },
  },
}
