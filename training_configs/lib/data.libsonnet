// Where the data of an experiment lies.
{
  // Files, or folders of files, in a folder. Some tasks have no test data.
  files(folder, train, dev, test=null):: {
    train: folder + '/' + train,
    dev: folder + '/' + dev,
    [if test != null then 'test']: folder + '/' + test,
  },
}
