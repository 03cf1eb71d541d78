// Where the data of an experiment lies, and how batches are made of it.
{
  // Files, or folders of files, in a folder. Some tasks have no test data.
  files(folder, train, dev, test=null):: {
    train: folder + '/' + train,
    dev: folder + '/' + dev,
    [if test != null then 'test']: folder + '/' + test,
  },

  // What an experiment on such files is trained and measured on. The epoch is kept that is the best on dev by `metric`;
  // training ends after `patience` epochs that are not better, null for never. Without dev, the last epoch is kept.
  experiment(data, num_epochs, patience, metric):: {
    random_seed: 13370,
    numpy_seed: 13370,
    pytorch_seed: 13370,
    train_data_path: data.train,
    [if 'dev' in data then 'validation_data_path']: data.dev,
    [if 'test' in data then 'test_data_path']: data.test,
    [if 'test' in data then 'evaluate_on_test']: true,
    trainer+: {
      num_epochs: num_epochs,
      patience: patience,
      validation_metric: metric,
      checkpointer: { keep_most_recent_by_count: 1 },
    },
  },

  // Batches of texts of similar length, of the fields in `sorting_keys`: the result of a text does not depend on the
  // others in its batch, unless ELMo normalizes layers over it (`do_layer_norm`, `snli.jsonnet`). So `allennlp evaluate`
  // reads the longest texts last; `elmo predict` answers in the order of the file.
  loaders(batch_size, sorting_keys):: {
    local sampler = { batch_size: batch_size, sorting_keys: sorting_keys },
    data_loader: { batch_sampler: sampler { type: 'bucket' } },
    validation_data_loader: { batch_sampler: sampler { type: 'elmo_even' } },
  },
}
